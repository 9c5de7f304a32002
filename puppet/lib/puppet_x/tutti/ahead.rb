# frozen_string_literal: true

require_relative 'facts_ahead'

module PuppetX
  module Tutti
    # A child of the warm parent that collects facts, and what it said. The parent keeps that as it came: what it knows, all of its
    # children know.
    class Ahead
      # What the parent waits for, while there is anything to come.
      attr_reader :out

      # @param dir [String] of the run whose order it follows
      # @yield [IO] in the child
      def initialize(dir)
        @dir = dir
        @at = now
        @said = +''
        @out, writer = IO.pipe
        @pid = fork do
          @out.close
          yield writer
        end
        writer.close
      end

      # Takes what has come, all of it: an order may have come with it.
      def take
        loop { @said << @out.read_nonblock(1 << 20) }
      rescue IO::WaitReadable
        nil
      rescue EOFError
        @out.close
        @out = nil
      end

      # @param dir [String, nil] the run whose facts would do
      # @param age [Numeric] seconds that they may be old
      # @return [String, nil] nil: there are none, or others
      def facts(dir, age)
        @said if @out.nil? && dir == @dir && now - @at <= age
      end

      # A collection that goes on is nobody's any more: it is over when this returns.
      def stop
        return if @out.nil?

        @out.close
        return if Process.wait(@pid, Process::WNOHANG)

        [-@pid, @pid].each { |whom| kill(whom) } # a group of its own, once it has one, with what Facter has started
        Process.wait(@pid)
      rescue Errno::ECHILD
        nil # it was over before
      end

      private

      def kill(whom)
        Process.kill('KILL', whom)
      rescue Errno::ESRCH
        nil
      end

      # It goes on while the machine sleeps.
      def now
        Process.clock_gettime(Process::CLOCK_BOOTTIME)
      end
    end
  end
end
