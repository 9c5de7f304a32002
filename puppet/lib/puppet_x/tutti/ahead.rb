# frozen_string_literal: true

require_relative 'facts_ahead'

module PuppetX
  module Tutti
    # An Ahead is a child of the warm parent, and the output of this child. The child collects facts. The output is
    # in a file without a name and not in the parent's memory, because each child of the parent has a copy of this
    # memory. If a run begins during the collection, the run waits for the collection and does not start another one.
    class Ahead
      # The parent waits for this pipe while the collection runs. The parent reads one byte or the end of the
      # pipe.
      attr_reader :out

      # @param dir [String] the directory of the run whose order the collection uses
      # @yield [IO] the file for the output; the block runs in the child
      def initialize(dir)
        @dir = dir
        @given = false
        @at = now
        @said = nameless(File.join(dir, 'facts.ahead'))
        @out, writer = IO.pipe
        @pid = fork do
          @out.close
          FactsAhead.pipe = writer
          yield @said
        ensure
          writer.write('.') # without this byte, a process that a fact has started could keep the pipe open for ever
        end
        writer.close
      end

      # Closes the pipe after the end of the collection.
      def take
        @out.close
        @out = nil
      end

      # Gives the collection to a run. Only one run can get a collection.
      # @param dir [String, nil] the directory of the run after which the facts must have been collected
      # @param age [Numeric] how old the facts may be, in seconds
      # @return [Ahead, nil]
      def give(dir, age)
        return if @given || dir != @dir || now - @at > age

        @given = true
        self
      end

      # Returns whether the collection has ended. The method waits at most `within` seconds for the end. The child of
      # a run calls this method.
      def ended?(within = 0)
        @out.nil? || !IO.select([@out], nil, nil, within).nil? || !File.exist?("/proc/#{@pid}")
      end

      # Waits for the facts. The child of a run calls this method only once.
      # @return [FactsAhead::Facts, nil] nil if the collection has no facts
      def facts
        hurry
        nil until ended?(1)
        @said.rewind
        FactsAhead::Facts.read(@said.read)
      ensure
        close
      end

      # Closes this process's files of the collection.
      def close
        @out&.close
        @out = nil
        @said.close
      end

      # Ends a collection that still runs. When the method returns, the collection has ended.
      def stop
        over = @out.nil?
        close
        return if over || Process.wait(@pid, Process::WNOHANG)

        [-@pid, @pid].each { |whom| kill(whom) } # the group, if it exists yet, contains the processes that Facter has started
        Process.wait(@pid)
      rescue Errno::ECHILD
        nil # the collection had ended before
      end

      private

      # A run waits for the collection now, so the collection gets normal priority. The collection has its own
      # process group.
      def hurry
        Process.setpriority(Process::PRIO_PGRP, @pid, 0)
      rescue SystemCallError
        nil # the collection has ended, or has no group yet
      end

      def nameless(path)
        File.open(path, 'w+b', 0o600).tap { File.unlink(path) }
      end

      def kill(whom)
        Process.kill('KILL', whom)
      rescue Errno::ESRCH
        nil
      end

      # This clock also runs while the machine sleeps.
      def now
        Process.clock_gettime(Process::CLOCK_BOOTTIME)
      end
    end
  end
end
