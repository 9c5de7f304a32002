# frozen_string_literal: true

require 'json'
require 'puppet'
require 'puppet/application_support'
require 'puppet/file_serving/content'
require 'puppet/file_serving/metadata'
require 'puppet/indirector/catalog/compiler'
require 'puppet/ssl/oids'
require_relative 'compared_catalog'
require_relative 'compiles'
require_relative 'content'
require_relative 'settings'

module PuppetX
  module Tutti
    # Compiles catalogs of nodes for one environment of this Puppet Server, as the Puppet Server would, and stores nothing
    # (ADR 0038). The facts are those that the Puppet Server has. The process belongs to the Puppet Server's user.
    #
    # Standard input has one JSON object: `environment`, `nodes`, and `key` for digests of secrets. Standard output has one
    # line of JSON for each node: `node`, and `catalog` or `failed`.
    class ServedCatalogs
      # The files in which a Puppet Server names its own directories.
      CONFIGURATIONS = %w[/etc/puppetlabs/puppetserver/conf.d/puppetserver.conf /etc/puppet/puppetserver/conf.d/puppetserver.conf].freeze
      DIRECTORY = /^\s*"?(?:master|server)-(conf|code|var|log|run)-dir"?\s*[:=]\s*"?([^"\s#]+)"?/.freeze

      # The exit code if this process cannot compile for any node.
      REFUSES = 86

      def self.start
        out = $stdout.dup
        $stdout.reopen($stderr) # a function may print something
        input = JSON.parse($stdin.read)
        new(input.fetch('environment'), input.fetch('key')).each(input.fetch('nodes')) do |found|
          out.puts JSON.generate(found)
          out.flush
        end
      rescue Puppet::Error => e
        warn e.message
        exit! REFUSES
      end

      # @return [Hash] the directories that puppetserver.conf names, as settings of Puppet
      # @raise [Puppet::Error] if there is no Puppet Server on this machine
      def self.directories(files = CONFIGURATIONS)
        file = files.find { |path| File.file?(path) }
        raise Puppet::Error, "this machine has no Puppet Server: there is no #{files.join(' and no ')}" if file.nil?

        File.read(file).scan(DIRECTORY).to_h.transform_keys { |name| "#{name}dir" }
      end

      def initialize(environment, key)
        @environment = environment
        @key = key
      end

      # Yields the result of each node.
      def each(nodes)
        settings
        environment = Puppet.lookup(:environments).get(@environment)
        raise Puppet::Error, "this Puppet Server has no environment #{@environment}" if environment.nil?

        content = Content.new(environment)
        nodes.each { |node| yield({ 'node' => node }.merge(result(node, environment, content))) }
      end

      private

      # Does what a Puppet Server does at its start (puppet/server/puppet_config.rb), but makes no directories and no cache.
      def settings
        Puppet.settings.preferred_run_mode = :server
        Puppet.initialize_settings(self.class.directories.flat_map { |name, path| ["--#{name}", path] })
        Puppet.settings.initialize_app_defaults(
          Puppet::Settings.app_defaults_for_run_mode(Puppet::Util::RunMode[:server]).merge(name: 'server', facts_terminus: 'json')
        )
        Puppet::Util::Log.level = :crit
        Puppet[:environment_timeout] = 'unlimited' # one process sees one state of the code
        Puppet::FileServing::Content.indirection.terminus_class = :file_server
        Puppet::FileServing::Metadata.indirection.terminus_class = :file_server
        Puppet::ApplicationSupport.configure_indirector_routes('server')
        Puppet::Node.indirection.cache_class = nil
        Compiles.install if Puppet[:storeconfigs_backend].to_s == 'tutti' # as the termini do it on this Puppet Server
        Puppet::SSL::Oids.register_puppet_oids
        Puppet::SSL::Oids.load_custom_oid_file(Puppet[:trusted_oid_mapping_file])
      end

      def result(name, environment, content)
        { 'catalog' => ComparedCatalog.of(catalog(name, environment), @key, content) }
      rescue StandardError, SystemStackError, ScriptError, NoMemoryError => e
        { 'failed' => e.message.to_s.gsub(/\s+/, ' ').strip[0, 2000] }
      rescue SystemExit
        { 'failed' => 'the code called exit' }
      end

      # The same steps as in puppet/server/compiler.rb, for a request that prefers its own environment and keeps nothing.
      def catalog(name, environment)
        facts = Puppet::Node::Facts.indirection.find(name, environment: environment, ignore_cache: true)
        raise Puppet::Error, 'this Puppet Server has no facts of the node' if facts.nil? || facts.values.empty?

        trusted = trusted(name, facts)
        Puppet.override({ current_environment: environment, trusted_information: trusted, tutti_looks: true }, 'a catalog that nobody applies') do
          node = Puppet::Node.indirection.find(name, environment: environment, facts: facts)
          node.environment = environment
          node.trusted_data = trusted.to_h
          Settings.check_manifest(node)
          Puppet::Resource::Catalog.indirection.terminus(:compiler).send(:add_node_data, node)
          Puppet::Parser::Compiler.compile(node)
        end
      end

      # Returns the trusted facts from the node's certificate, or as PuppetDB has stored them.
      def trusted(name, facts)
        path = [File.join(Puppet[:cadir], 'signed', "#{name}.pem"), *(Puppet[:hostcert] if Puppet[:certname] == name)].find { |file| File.readable?(file) }
        return Puppet::Context::TrustedInformation.remote(true, name, Puppet::SSL::Certificate.from_s(File.read(path))) if path

        stored = facts.values['trusted']
        unless stored.is_a?(Hash) && stored['extensions'].is_a?(Hash)
          raise Puppet::Error, "nobody knows the node's trusted facts here: #{Puppet[:cadir]} has no certificate of it, and PuppetDB has no trusted facts"
        end

        Puppet::Context::TrustedInformation.new('remote', name, stored['extensions'], stored['external'] || {})
      end
    end
  end
end
