# frozen_string_literal: true

require 'puppet'
require 'puppet/application/apply'
require 'puppet/configurer'
require 'puppet/settings/environment_conf'
require 'puppet/transaction'
require_relative 'questions'
require_relative 'run'

module PuppetX
  module Tutti
    # This module installs the hooks by which the launcher adds its code to Puppet's own run. The hooks
    # are installed only in the launcher's process. The hooked places are the same in Puppet 7.23, 8 and
    # OpenVox. Each hook calls the launcher and stores no state.
    module Hooks
      def self.install(order)
        Puppet::Configurer.prepend(Configurer)
        Puppet::Transaction.prepend(Transaction)
        Puppet::Transaction::ResourceHarness.prepend(Harness)
        Puppet::Transaction::EventManager.prepend(EventManager)
        Puppet::Type.prepend(Noop) if order.noop?
        Redaction.install
        order.agent? ? agent : apply
      end

      def self.agent
        require 'puppet/application/agent'
        require 'puppet/agent'
        Puppet::Application::Agent.prepend(Agent)
        Puppet::Agent.prepend(Disabler)
        Puppet::Configurer.prepend(Retrieval)
      end

      def self.apply
        Puppet::Application::Apply.prepend(Apply)
        Puppet::Parser::Compiler.singleton_class.prepend(Compiler)
        Puppet::Transaction::Persistence.prepend(Persistence)
        Puppet::Settings::EnvironmentConf.prepend(EnvironmentConf)
        Questions.install
      end

      # This hook keeps a noop run from changing resources with `noop => false`, which Puppet alone would change.
      module Noop
        # Puppet uses other catalogs for its own settings and files. In those catalogs `noop => false` has its usual
        # effect.
        def noop?
          catalog.nil? || catalog.host_config? || super
        end
      end

      # These hooks for `puppet apply` set the run's settings, hold the lock during the whole run, and write the
      # phases.
      module Apply
        def setup
          Launcher.current.settings(options)
          super
        end

        def main
          Launcher.current.surround { super }
        end

        private

        def get_node # rubocop:disable Naming/AccessorMethodName
          Launcher.current.collecting
          Launcher.current.asking
          node = super
          Launcher.current.compiling(node)
          node
        rescue SystemExit => e
          Puppet.err("tutti: a fact, or what else says which node this is, ended the process with exit #{e.status}")
          raise
        end
      end

      # These hooks for `puppet agent` set the run's settings, and hold the lock during the whole run.
      module Agent
        def setup
          Launcher.current.settings(options)
          super
        end

        def onetime(daemon)
          daemon.agent.disabled? # before the run waits for the lock
          Launcher.current.surround { super }
        end
      end

      # This hook runs at each place where Puppet checks whether Puppet is disabled.
      module Disabler
        def disabled?
          super.tap { |is| Launcher.current.disabled(disable_message) if is }
        end
      end

      # These hooks run while `puppet agent` gets its catalog from the Puppet Server. The hooks write the phases, and
      # wait at the gate before Puppet uses the catalog.
      module Retrieval
        def get_facts(options)
          Launcher.current.collecting
          super.tap do |_, facts|
            Launcher.current.synchronised
            Launcher.current.facts(Run.current.facts = facts.values) unless facts.nil?
          end
        end

        # get_facts calls this method after pluginsync.
        def find_facts
          Launcher.current.asking
          super
        end

        # If the server does not have the environment, the run ends without a catalog, in the phase `compile`.
        def valid_server_environment?
          Launcher.current.phase('compile')
          super
        end

        def prepare_and_retrieve_catalog(*)
          Launcher.current.phase('compile')
          super
        end

        def convert_catalog(catalog, *)
          Launcher.current.gate(catalog)
          super
        end
      end

      # This hook gives the node the classes and parameters of the ENC, and records why a compile ended without a
      # catalog.
      module Compiler
        def compile(node, code_id = nil)
          Launcher.current.classify(node)
          super
        rescue StandardError => e
          Launcher.current.not_compiled(e)
          raise
        end
      end

      # These hooks set the run's id in Puppet, write the phases up to the application of the catalog, and
      # write the report.
      module Configurer
        def initialize(transaction_uuid = nil, job_id = nil)
          run = Run.current.order.run
          super(transaction_uuid || run, job_id || run)
        end

        def execute_prerun_command
          Launcher.current.phase('prerun') unless Puppet[:prerun_command].empty?
          super
        end

        def apply_catalog(catalog, options)
          Launcher.current.applying
          super
        end

        def send_report(report)
          return if Launcher.current.ended?

          Launcher.current.report(report)
          super
        end
      end

      # These hooks write the events of the host catalog's resources. Settings catalogs also pass through this hook.
      module Transaction
        private

        def eval_resource(resource, ancestor = nil)
          return super unless catalog.host_config? && !resource.is_a?(Puppet::Type::Whit)

          Launcher.current.events.around(self, resource) { super }
        end
      end

      # This hook runs before Puppet changes a resource of the host catalog.
      module Harness
        private

        def sync(event, param, *)
          note(param.resource) if transaction.catalog.host_config?
          super
        end

        def note(resource)
          Launcher.current.events.changing(transaction, resource)
        rescue SystemCallError, IOError => e
          raise Puppet::Error, "tutti: not changed, for what it refreshes cannot be noted: #{e.message}", cause: nil
        end
      end

      # This hook runs before and after Puppet refreshes a resource of the host catalog. If Puppet has just
      # started a service, the service no longer needs a refresh.
      module EventManager
        def queue_events(resource, events)
          super
          done = transaction.catalog.host_config? && events.any? { |event| event.invalidate_refreshes && event.status == 'success' }
          Launcher.current.events.refreshed(resource) if done
        end

        private

        def process_callback(resource, callback, events)
          return super if resource.is_a?(Puppet::Type::Whit) || !transaction.catalog.host_config? || !process_callback?(resource, events)
          return false unless noted?(resource)

          super.tap { |refreshed| Launcher.current.events.refreshed(resource) if refreshed }
        end

        # An error has the same effects as a failed refresh in Puppet.
        def noted?(resource)
          Launcher.current.events.changing(transaction, resource)
          true
        rescue SystemCallError, IOError => e
          message = "tutti: not refreshed, for what it refreshes itself cannot be noted: #{e.message}"
          resource.err(message)
          transaction.resource_status(resource).failed_to_restart = true
          transaction.resource_status(resource).fail_with_event(message)
          false
        end
      end

      # This hook lets Puppet distinguish a corrective change from an intentional one. Puppet stores the
      # old state of resources only for `puppet agent`. Without the old state every change of
      # `puppet apply` counts as intentional.
      module Persistence
        def enabled?(catalog)
          catalog.host_config?
        end
      end

      # environment.conf stays unchanged. The module of the agent comes last on the modulepath.
      module EnvironmentConf
        def modulepath
          [super, *Run.current.order.modulepath].reject(&:empty?).join(File::PATH_SEPARATOR)
        end
      end
    end
  end
end
