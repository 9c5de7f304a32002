# frozen_string_literal: true

require_relative 'errors'
require_relative 'fact_costs'
require_relative 'journal'
require_relative 'order'
require_relative 'client'

module PuppetX
  module Tutti
    # A Launcher is one run of Puppet that Tutti has ordered: the program `puppet-tutti RUNDIR`. The run writes
    # everything to files of its directory (docs/run-protocol.md). The run uses no pipes, because a broken pipe
    # makes a Puppet run fail in the middle.
    class Launcher
      BAD_ORDER = 64
      LOCKED = 75
      STOPPED = 76
      DISABLED = 77
      NAME = 'puppet-tutti'
      # SIGNALS are the signals that end a process without traps.
      SIGNALS = %w[TERM HUP INT QUIT USR1 USR2].freeze

      class << self
        attr_accessor :current

        def start(argv)
          dir = argv.first
          unless argv.length == 1 && File.directory?(dir)
            warn "usage: #{NAME} RUNDIR, a directory with the file run.json (#{dir.inspect} is none)"
            exit BAD_ORDER
          end
          @current = new(File.realpath(dir))
          @current.start
        end

        # Starts a run in a child of the warm parent.
        # @param preload [Preload] the code that is already loaded, and perhaps a collection of facts
        def warm(dir, preload)
          ARGV.replace([dir])
          self.current = new(dir, preload)
          current.start
        end

        # Writes the process of a run to the file `pid` in the run's directory.
        # @return [Hash]
        def mark(dir, pid)
          start = File.read("/proc/#{pid}/stat").rpartition(')').last.split[19]
          { 'pid' => pid, 'start' => Integer(start) }.tap { |process| Journal.replace(File.join(dir, 'pid'), process) }
        end
      end

      FACT_USE = 'fact-use.json'
      PROGRAM = File.realpath('../../../bin/puppet-tutti', __dir__)

      attr_reader :events

      # @param preload [Preload, nil] nil if nothing was loaded ahead
      def initialize(dir, preload = nil)
        @dir = dir
        @preload = preload
        @phases = Journal.new(file('phase.jsonl'))
        @log = Journal.new(file('log.jsonl'))
        @gate_passed = false
        @environment = ENV.to_h
      end

      def start
        detach
        Launcher.mark(@dir, Process.pid) unless @preload
        phase('settings', 'pid' => Process.pid, 'warm' => !@preload.nil?)
        run
      rescue Refused => e
        refuse(e.message)
      rescue NoAnswer => e
        refuse("#{e.message} (#{e.code})")
      end

      # Writes the phase that now begins.
      def phase(name, fields = {})
        @phases.write({ 'phase' => name }.merge(fields))
      end

      # Sets the settings of this run from the order. The settings of the order override the site's puppet.conf.
      def settings(options)
        options[:setdest] = true # the log goes to log.jsonl; the console is a file that nobody reads
        Settings.new(@order, @dir).apply
        start_over(debug || @preload.overridden) if @preload
        facts_ahead if @preload
      rescue Refused => e
        refuse(e.message)
      end

      # Takes the lock and runs the block, which does everything up to the report.
      def surround(&block)
        Settings.new(@order, @dir).route
        trap_signals
        with_lock do
          Puppet.override({ lookup_key_recorder: Run.current.keys }, 'the run of Tutti', &block)
        ensure
          Run.current.hand_over
        end
      rescue Refused => e
        refuse(e.message)
      end

      # The run collects facts next. `puppet agent` gets its plugins at this point.
      def collecting
        phase('facts')
      end

      # All plugins are there, and Facter is asked next. If a collection still runs, the method waits for the
      # collection. Facts that were good at the start may be outdated now, because the run waited for another Puppet run
      # or got new plugins. Puppet calls the method once more if the server names another environment.
      def asking
        if @preload
          facts = @ahead ? @ahead.facts : @facts
          @ahead = nil
          use(facts)
          start_over(@facts&.leave)
          phase('facts', 'age' => @facts_age) if @facts
        end
        FactCosts.watch
      end

      # The node is known, and its catalog is compiled next.
      def compiling(node)
        raise Puppet::Error, "tutti: no facts of #{node.name} were found" if Run.current.facts.nil?

        start_over(@preload.refuted) if @preload
        phase('compile')
        Settings.check_manifest(node) unless @order.enc?
      end

      # The compile begins. If the order says so, the node gets the classes and parameters of the ENC. Such a node needs
      # no manifest.
      def classify(node)
        return unless @order.enc?

        Run.current.classify(node)
        Settings.check_manifest(node)
      rescue Puppet::Error => e
        Puppet.err(e.message) # Puppet logs only errors of its own compiler
        raise
      end

      # The node has the Puppet Server's plugins and its facts, and requests a catalog next.
      def synchronised
        start_over(@preload.synced || @preload.refuted) if @preload
      end

      # `puppet agent` is disabled on this node. The message of Puppet gives the reason.
      def disabled(message)
        phase('lock', 'disabled' => message.to_s)
        Puppet.notice("tutti: Puppet is disabled: #{message}")
        @ended = DISABLED
        exit DISABLED
      end

      # Returns whether the run has ended before it could change anything. If the run has ended in this way, Puppet
      # sends no report.
      def ended?
        !@ended.nil?
      end

      # The compile ended with an error.
      def not_compiled(error)
        waits(Run.current.waits.ending(error))
      end

      # Waits at the gate. The method returns only if the run may apply its catalog.
      def gate(catalog)
        waits(Run.current.waits.noted)
        phase('gate')
        keep(catalog) if @order.diff?
        verdict, reason, holds = Run.current.gate(catalog)
        phase('gate', 'verdict' => verdict, 'reason' => reason)
        unless verdict == 'go' && @order.mode != 'compile'
          Puppet.notice("tutti: stopped at the gate: #{reason || verdict}; nothing is applied")
          @ended = STOPPED
          exit STOPPED
        end
        @gate_passed = true
        hold(catalog) if holds == true && @order.mode == 'apply'
        phase('convert')
      end

      # Puppet applies the catalog next. The run must have passed the gate, even if the site's settings change
      # the indirections.
      def applying
        raise Puppet::Error, 'tutti: the catalog did not pass the gate, it is not applied' unless @gate_passed

        phase('apply')
      end

      def report(report)
        phase('report')
        events.rest(report.resource_statuses.values)
        Journal.replace(file('report.json'), report.to_data_hash)
      rescue SystemCallError => e
        Puppet.err("tutti: cannot write the report: #{e.message}")
      end

      # Stores the facts, because operators may ask for facts after the run (docs/howto/puppet.md). If the facts
      # cannot be stored, the run still continues.
      def facts(values)
        @fact_costs ||= FactCosts.record
        Run.current.outside = Outside.new(@order.agent? ? nil : Puppet.lookup(:current_environment), @order.volatile_facts).facts
        Journal.replace(file('outside.json'), Run.current.outside)
        Journal.replace(file('facts.json'), values)
      rescue SystemCallError => e
        Puppet.warning("tutti: cannot keep the facts: #{e.message}")
      end

      private

      # Puppet logs many messages while it is loaded.
      def debug
        return 'the order asks for debug messages' if @order.debug?

        'puppet.conf asks for debug messages' if defined?(Puppet::Util::Log) && Puppet::Util::Log.level == :debug
      end

      # Facts that were collected ahead may answer questions that come before the collection of all facts.
      def facts_ahead
        @ahead = @preload.ahead
        return use(nil) unless @ahead&.ended?

        use(@ahead.facts)
        @ahead = nil
      end

      # From now on, this run uses the facts that were collected ahead, if they are still valid.
      # @param facts [FactsAhead::Facts, nil]
      def use(facts)
        @facts = (facts if facts&.valid?)
        @told = FactsAhead::Told.by(@facts)
        @facts_age = @facts&.age&.round(3)
        @fact_costs = @facts&.costs
      end

      # Stores the catalog for queries (ADR 0036). If the catalog cannot be stored, the run still continues.
      def hold(catalog)
        require_relative 'held_catalog'
        HeldCatalog.write(@dir, catalog, (@order.code unless @order.agent?))
      rescue StandardError => e
        Puppet.warning("tutti: cannot keep the catalog for queries: #{e.message}")
      end

      # Stores the catalog, so that the agent can compare it. If the catalog cannot be stored, the agent says that there is
      # none.
      def keep(catalog)
        require_relative 'compared_catalog'
        ComparedCatalog.write(@dir, catalog, @order, Content.new(Puppet.lookup(:current_environment)))
      rescue StandardError => e
        Puppet.err("tutti: cannot keep the catalog for the diff: #{e.message}")
      end

      # Reports the questions for which this compile waits.
      def waits(list)
        phase('compile', 'waits' => list) unless list.empty?
      end

      def run
        @order ||= Order.read(@dir)
        start_over(debug) if @preload
        raise Refused, "the code #{@order.code} does not exist" unless @order.agent? || File.directory?(@order.code)

        require 'puppet'
        require 'puppet/util/command_line'
        require_relative 'hooks'
        require_relative 'lock'
        require_relative 'log'
        require_relative 'settings'
        require_relative 'events'
        Log.to(@log)
        @events = Events.new(Journal.new(file('events.jsonl')), @order.noop? ? [] : @order.owed)
        connect
        Hooks.install(@order)
        Puppet::Util::CommandLine.new('puppet', Settings.new(@order, @dir).arguments).execute
      end

      def connect
        client = Client.new(@order.socket, {
                              'run' => @order.run, 'protocol' => Order::PROTOCOL, 'module' => Settings.version, 'opens' => true,
                              'puppet' => Puppet.version, 'ruby' => RUBY_VERSION, 'certname' => @order.node,
                              'pid' => Process.pid
                            })
        # The agent's answer, and not the file, decides whether this run may change anything.
        mode = client.greeting['mode']
        raise Refused, "the agent says mode #{mode.inspect}, the order says #{@order.mode.inspect}" unless mode == @order.mode

        Run.current = Run.new(@order, client)
      end

      def with_lock
        lock = Lock.new(Lock.path)
        phase('lock')
        taken = lock.take do |pid, command|
          phase('lock', 'waiting_for' => { 'pid' => pid, 'command' => command })
          Run.current.lock_wait(lock.path, pid, command)
        end
        unless taken
          Puppet.err("tutti: another Puppet still holds #{lock.path} after #{@order.lock_timeout} s")
          exit LOCKED
        end
        begin
          yield
        ensure
          lock.release
        end
      end

      # Makes the process independent. The process has no input and no pipes that can break. Puppet's lock recognises
      # the process as a Puppet by the name of the process. Without an argument `puppet apply` reads code from stdin.
      # Stdin is empty, so Puppet uses the manifest of environment.conf.
      def detach
        $stdin.reopen(File::NULL)
        $stdout.reopen(file('stdout'), 'a')
        $stderr.reopen(file('stderr'), 'a')
        $stdout.sync = $stderr.sync = true
        File.write('/proc/self/comm', NAME)
        at_process_exit
        trap_signals
      end

      # Replaces Puppet's own traps. On INT, Puppet itself would exit, and the traps of `puppet agent`
      # are for a daemon.
      def trap_signals
        SIGNALS.each { |name| Signal.trap(name) { interrupted(name) } }
      end

      # The error makes Puppet end in its own way, with a report. Only this process knows that a signal was
      # the cause.
      def interrupted(name)
        @cause = SignalException.new(name)
        raise @cause
      end

      # The run starts again in the same process with nothing loaded ahead. Nothing was compiled yet.
      def start_over(why)
        return if why.nil?

        @phases.write('cold' => why)
        # The new start repeats all messages, except the messages about new plugins.
        File.truncate(file('log.jsonl'), 0) unless @order.agent?
        exec(@environment, RbConfig.ruby, PROGRAM, @dir, unsetenv_others: true)
      end

      # Puppet is not loaded yet when this handler is registered, so the handler runs after all handlers of Puppet.
      def at_process_exit
        owner = Process.pid
        at_exit { done($!) if Process.pid == owner } # rubocop:disable Style/SpecialGlobalVars
      end

      def done(error)
        fields = { 'exit' => @ended || status(error) }
        error = @cause if @cause
        fields['error'] = { 'class' => error.class.name, 'message' => error.message } unless error.nil? || error.is_a?(SystemExit)
        note_facts
        phase('done', fields)
      end

      # Records the cost of facts, and the facts that were requested one by one. The next collection must also have
      # the facts that were requested one by one.
      def note_facts
        return if @fact_costs.nil?

        File.write(file(FACT_USE), JSON.generate(@fact_costs.merge('asked' => @told&.asked || [])))
      rescue SystemCallError
        nil # the disk may be full
      end

      def status(error)
        case error
        when nil then 0
        when SystemExit then error.status
        when SignalException then 128 + error.signo
        else 1
        end
      end

      def refuse(message)
        @cause = Refused.new(message)
        warn "#{NAME}: #{message}"
        @log.write('level' => 'err', 'message' => "tutti: #{message}", 'source' => NAME)
        exit BAD_ORDER
      end

      def file(name)
        File.join(@dir, name)
      end
    end
  end
end
