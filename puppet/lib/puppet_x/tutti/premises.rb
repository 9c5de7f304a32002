# frozen_string_literal: true

require 'json'
require 'puppet'

module PuppetX
  module Tutti
    # What Puppet's code asked the machine while it was loaded ahead: facts, settings, features, commands. Some providers do so when they are
    # loaded, not when they are used. A child asks again: with another answer it would have loaded something else.
    class Premises
      class << self
        attr_reader :current

        # Notes what a block asks.
        # @return [Premises]
        def during
          services = Puppet.runtime.instance_variable_get(:@runtime_services)
          facter = services[:facter]
          Puppet::Settings.prepend(Settings)
          Puppet::Provider.singleton_class.prepend(Commands)
          Puppet::Util::Execution.singleton_class.prepend(Executions)
          @current = new
          Puppet.runtime[:facter] = Facts.new
          yield
          @current
        ensure
          @current = nil
          services[:facter] = facter
          withdraw
        end

        # The answer to a question of code that is loaded now; elsewhere whatever the block gives.
        def ask(kind, question, &block)
          @current ? @current.ask(kind, question, &block) : yield
        end

        private

        # Nothing stands before Puppet's own methods any more: a module may wrap them (`alias_method` would find what stands before).
        def withdraw
          { Settings => :[], Commands => :which, Executions => :execute }.each { |hook, name| hook.send(:remove_method, name) }
        end
      end

      def initialize
        @answers = {}
        @features = nil
      end

      # Asks, the first time.
      def ask(kind, question)
        @answers[[kind, question]] ||= [yield]
        @answers[[kind, question]].first
      end

      # Forgets which features there are, in a child; they are asked again when they are needed.
      def forget
        results = Puppet.features.instance_variable_get(:@results)
        @features = results.dup
        results.clear
      end

      # Compares what can be asked as soon as the run's search path is known.
      # @return [String, nil] what was not as it is now
      def refuted
        refuted_setting ||
          refuted_of(:which) { |name| Puppet::Provider.send(:which, name) } ||
          refuted_of(:execute) { |command| Executions.said { Puppet::Util::Execution.execute(*command) } } ||
          refuted_feature
      end

      # Compares the facts, once the run has its own.
      # @return [String, nil] what was not as it is now
      def refuted_by_facts
        refuted_of(:fact) { |name| Puppet.runtime[:facter].value(name) }
      end

      private

      def refuted_of(kind)
        @answers.each do |(of, question), (before)|
          now = yield(question) if of == kind
          return difference("#{kind} #{Array(question).first}", before, now) if of == kind && now != before
        end
        nil
      end

      # A setting may be a secret.
      def refuted_setting
        _, name = @answers.find { |(kind, question), (before)| kind == :setting && Puppet[question] != before }&.first
        "setting #{name} is not as it was when Puppet was loaded" if name
      end

      def refuted_feature
        @features.each do |name, before|
          now = Puppet.features.public_send("#{name}?")
          return difference("feature #{name}", !!before, now) unless now == !!before # rubocop:disable Style/DoubleNegation
        end
        nil
      end

      def difference(what, before, now)
        "#{what} was #{before.inspect} when Puppet was loaded and is #{now.inspect}"
      end

      # What puppet.conf says; there is none yet.
      module Settings
        def [](name)
          Premises.ask(:setting, name) { super }
        end
      end

      # Where a provider's command is.
      module Commands
        def which(name)
          Premises.ask(:which, name) { super }
        end
      end

      Failure = Struct.new(:message)

      # What a command said, or how it failed.
      module Executions
        def self.said
          yield.to_s
        rescue Puppet::ExecutionFailure => e
          Failure.new(e.message)
        end

        def execute(*command)
          return super unless Premises.current

          said = Premises.ask(:execute, command) { Executions.said { super } }
          raise Puppet::ExecutionFailure, said.message if said.is_a?(Failure)

          Puppet::Util::Execution::ProcessOutput.new(said, 0)
        end
      end

      # Facter for code that is loaded ahead. It is asked in a process of its own: here its answers would be those of all runs.
      class Facts
        def value(name)
          Premises.ask(:fact, name.to_s) { elsewhere(name) }
        end

        private

        def elsewhere(name)
          reader, writer = IO.pipe
          pid = fork do
            writer.write(JSON.generate([Facter.value(name)]))
            writer.flush
            exit!(0)
          end
          writer.close
          JSON.parse(reader.read).first
        ensure
          reader.close
          Process.wait(pid)
        end
      end
    end
  end
end
