# frozen_string_literal: true

require 'json'
require_relative 'ahead'
require_relative 'control_group'
require_relative 'facts_ahead'
require_relative 'launcher'
require_relative 'preload'

module PuppetX
  module Tutti
    # The warm parent has Puppet loaded, and forks one child for each run. The agent sends orders as lines of JSON
    # through the parent's stdin, a socket that nobody else has. When the socket closes, the parent ends. The
    # children do not need the parent after that (docs/adr/0014-warm-runner.md).
    class Warm
      # The name must not look like Puppet, because the process is not the owner of a lock.
      NAME = 'tutti-warm'

      def self.start
        new(IO.for_fd(0, 'r+')).serve
      end

      # @param agent [IO]
      def initialize(agent)
        @agent = agent
        @agent.sync = true
        @groups = []
      end

      def serve
        File.write('/proc/self/comm', NAME)
        @ended, @bell = IO.pipe
        trap('CHLD') { @bell.write_nonblock('.', exception: false) }
        @preload = Preload.call
        GC.start
        say('ready' => true)
        loop { wait }
      end

      private

      # The parent waits in one call without a timer or a thread.
      def wait
        ready, = IO.select([@agent, @ended, @ahead&.out].compact)
        reap if ready.include?(@ended)
        @ahead.take if @ahead && ready.include?(@ahead.out)
        order if ready.include?(@agent)
      end

      def order
        line = @agent.gets
        leave if line.nil?
        order = JSON.parse(line)
        case order['do']
        when 'run' then say(answer(order))
        when 'facts' then collect(order['dir'])
        end
      end

      def answer(order)
        changed = @preload.changed
        return { 'changed' => changed } if changed

        @preload.ahead = @ahead&.give(order['facts_for'], order['facts_age'])
        forget unless @preload.ahead
        run(order['dir'])
      end

      # Starts a collection of facts after the run in a directory. A later run may use these facts.
      def collect(dir)
        forget
        @ahead = Ahead.new(dir) { |out| child('facts') { FactsAhead.collect(dir, @preload, out) } }
      rescue SystemCallError
        nil # if the disk is full, there is no collection
      end

      # Ends the collection, because nobody needs its facts any more.
      def forget
        @ahead&.stop
        @ahead = @preload.ahead = nil
      end

      # Creates the child for a run. The child waits until its pid is on disk. If the parent ends earlier, the
      # child ends without starting the run, and nobody writes a pid.
      def run(dir)
        reader, go = IO.pipe
        pid = fork do
          go.close
          exit!(0) if reader.read(1).nil?
          reader.close
          child(dir) { Launcher.warm(dir, @preload) }
        end
        @groups += ControlGroup.make(File.basename(dir), pid)
        begins = Launcher.mark(dir, pid)
        go.write('.')
        begins
      rescue SystemCallError => e
        { 'error' => e.message }
      ensure
        reader.close
        go.close
      end

      def child(title)
        [@agent, @ended, @bell].each(&:close)
        trap('CHLD', 'DEFAULT')
        Process.setsid
        Process.setproctitle("#{Launcher::NAME} #{title}")
        @preload.forget
        yield
      end

      def reap
        @ended.read_nonblock(4096, exception: false)
        nil while Process.wait(-1, Process::WNOHANG)
      rescue Errno::ECHILD
        nil
      ensure
        @groups = ControlGroup.sweep(@groups)
      end

      def say(answer)
        @agent.write("#{JSON.generate(answer)}\n")
      rescue Errno::EPIPE
        leave
      end

      # Ends the parent after the agent has gone. Current runs continue, but nobody will use the facts.
      def leave
        forget
        exit
      end
    end
  end
end
