# frozen_string_literal: true

# Waits until a condition is true. No event reports this, so the method checks the condition a hundred times a second.
# The method does not check continuously, because the runs need the processor.
module Waiting
  EVERY = 0.01 # seconds

  # @param seconds [Numeric] the deadline
  # @param what [String, Proc] the name of the condition, for the error
  # @return the first result of the block that is neither nil nor false
  def self.for(seconds, what)
    deadline = now + seconds
    until (found = yield)
      raise "not within #{seconds} s: #{what.respond_to?(:call) ? what.call : what}" if now > deadline

      sleep EVERY
    end
    found
  end

  def self.now
    Process.clock_gettime(Process::CLOCK_MONOTONIC)
  end
  private_class_method :now
end
