# frozen_string_literal: true

require 'puppet'
require 'yaml'
require 'puppet/indirector/catalog/compiler'
require_relative 'client'
require_relative 'compile'
require_relative 'order'
require_relative 'puppetdb'
require_relative 'questions'
require_relative 'settings'

module PuppetX
  module Tutti
    # This module handles the compiles of a Puppet Server. Several compiles run at the same time, in
    # threads and in JRubies. Therefore the module stores nothing about a single compile.
    module Compiles
      # The configuration file is in the directory of puppet.conf. It is optional.
      FILE = 'tutti-server.yaml'
      DEFAULTS = { 'socket' => '/run/tutti-agent/compile.sock', 'exports' => 'tutti' }.freeze
      ALLOWED = { 'socket' => %r{\A/}, 'exports' => /\A(?:tutti|puppetdb)\z/ }.freeze
      # RECONNECT is the number of seconds to wait for an agent that restarts. During this wait the Puppet
      # Server cannot use one of its JRubies.
      RECONNECT = 5

      class << self
        # Installs the hooks, once for each JRuby. The termini call this method before the first compile.
        def install
          return if @installed || !Puppet.run_mode.server?

          @installed = true
          Questions.install
          Puppet::Resource::Catalog::Compiler.prepend(Request)
          Puppet::Parser::Compiler.singleton_class.prepend(Compiler)
        end

        # Returns whether this process is a Puppet Server that compiles with Tutti.
        def installed?
          @installed == true
        end

        # @return [Hash] the content of the configuration file, which the process reads only once
        def config
          @config ||= read(File.join(Puppet[:confdir], FILE))
        end

        # Returns whether PuppetDB stores facts and catalogs, and answers collectors.
        def puppetdb?
          installed? && config['exports'] == 'puppetdb'
        end

        # Returns whether nobody will apply or store the catalog of this compile (ADR 0038).
        def looks?
          Puppet.lookup(:tutti_looks) { false }
        end

        # Runs the block as a compile for a node.
        def around(name)
          client = Client.new(config['socket'], hello(name), reconnect: RECONNECT)
          greeting = greeting(client)
          return Puppet.override({ tutti_compile: nil }, 'no node of Tutti') { yield } unless greeting['node'] == true # rubocop:disable Style/ExplicitBlockArgument

          compile = Compile.new(name, client, recorded: greeting['recorded'] == true, puppetdb: puppetdb? && !looks?)
          compile.keys.outer = Puppet.lookup(:lookup_key_recorder) { nil }
          Puppet.override({ tutti_compile: compile, lookup_key_recorder: compile.keys }, 'a compile with Tutti') do
            handed(compile) { yield } # rubocop:disable Style/ExplicitBlockArgument
          end
        ensure
          client&.close
        end

        private

        def read(path)
          given = File.exist?(path) ? YAML.safe_load(File.read(path)) || {} : {}
          unless given.is_a?(Hash) && given.all? { |name, value| ALLOWED[name]&.match?(value.to_s) }
            raise Puppet::Error, "tutti: #{path}: there are `socket: PATH` and `exports: tutti|puppetdb` only"
          end

          DEFAULTS.merge(given)
        end

        def handed(compile)
          begin
            catalog = levelled(compile) { yield } # rubocop:disable Style/ExplicitBlockArgument
          rescue StandardError => e
            compile.not_compiled(e)
            raise
          end
          compile.hand_over(catalog)
          catalog
        end

        # If a compile fails because Tutti's Hiera level is missing, the error names the missing
        # level and not the failure that follows from it.
        def levelled(compile)
          catalog = yield
        rescue StandardError => e
          compile.check_level if compile.waits.ending(e).any? { |wait| wait['query']['kind'] == 'hiera' }
          raise
        else
          compile.check_level
          catalog
        end

        def greeting(client)
          client.greeting
        rescue NoAnswer => e
          raise Puppet::Error, "tutti: #{e.message} (#{e.code}); without its answers there is no catalog"
        end

        def hello(name)
          { 'run' => Puppet.lookup(:tutti_transaction) { nil }.to_s, 'protocol' => Order::PROTOCOL, 'module' => Settings.version, 'opens' => true,
            'puppet' => Puppet.version, 'ruby' => RUBY_VERSION, 'certname' => name, 'pid' => Process.pid }
        end
      end

      # Remembers which run of the node has requested the catalog.
      module Request
        private

        def compile(node, options)
          Puppet.override({ tutti_transaction: options[:transaction_uuid] }, 'a catalog request') { super }
        end
      end

      # This hook runs for every compile of a catalog.
      module Compiler
        def compile(node, code_id = nil)
          Compiles.around(node.name) { super }
        end
      end
    end
  end
end
