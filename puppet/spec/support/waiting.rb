# frozen_string_literal: true

# Waits for a condition that only a check can show. The method checks a hundred times a second and not continuously,
# because the runs need the processor.
module Waiting
  EVERY = 0.01 # seconds

  # @param seconds [Numeric] the deadline
  # @param what [String, Proc] what is waited for
  # @return what the block returned that is neither nil nor false
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
