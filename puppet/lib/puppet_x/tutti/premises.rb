# frozen_string_literal: true

require 'json'
require 'puppet'

module PuppetX
  module Tutti
    # Premises are the questions that Puppet's code asked about the machine while the code was loaded ahead.
    # The questions are about facts, settings, features and commands. Some providers ask questions of this kind
    # when they are loaded, not when they are used. A child asks the questions again. If an answer differs, the
    # child itself would have loaded other code.
    class Premises
      class << self
        attr_reader :current

        # Records the questions of a block.
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

        # Returns the recorded answer to a question while code is loaded ahead. At other times the method returns the
        # result of the block.
        def ask(kind, question, &block)
          @current ? @current.ask(kind, question, &block) : yield
        end

        private

        # Removes the hooks from Puppet's own methods, because a module may wrap these methods, and `alias_method` would
        # find the hooks.
        def withdraw
          { Settings => :[], Commands => :which, Executions => :execute }.each { |hook, name| hook.send(:remove_method, name) }
        end
      end

      def initialize
        @answers = {}
        @features = nil
      end

      # Runs the block only for the first time that the question is asked.
      def ask(kind, question)
        @answers[[kind, question]] ||= [yield]
        @answers[[kind, question]].first
      end

      # A child forgets the known features. Puppet checks the features again when it needs them.
      def forget
        results = Puppet.features.instance_variable_get(:@results)
        @features = results.dup
        results.clear
      end

      # Compares the answers that can be checked when the run's search path is known.
      # @return [String, nil] a text about an answer that differs now
      def refuted
        refuted_setting ||
          refuted_of(:which) { |name| Puppet::Provider.send(:which, name) } ||
          refuted_of(:execute) { |command| Executions.said { Puppet::Util::Execution.execute(*command) } } ||
          refuted_feature
      end

      # Compares the facts after the run has its own facts.
      # @return [String, nil] a text about an answer that differs now
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

      # The message does not show the setting, because its value may be a secret.
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

      # This hook records the settings. When the hook runs, Puppet has not read puppet.conf yet.
      module Settings
        def [](name)
          Premises.ask(:setting, name) { super }
        end
      end

      # This hook records the path of a provider's command.
      module Commands
        def which(name)
          Premises.ask(:which, name) { super }
        end
      end

      Failure = Struct.new(:message)

      # This hook records the output of a command, or its error.
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

      # This class is the Facter for code that is loaded ahead. Facter runs in a separate process. In the parent's
      # own process the answers of Facter would stay for all runs.
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
