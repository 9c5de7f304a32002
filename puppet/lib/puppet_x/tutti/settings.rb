# frozen_string_literal: true

require 'fileutils'
require 'puppet'
require_relative 'hiera_config'

module PuppetX
  module Tutti
    # Puppet's settings for one run. The site's puppet.conf is honoured except where it would make this run another
    # one than was ordered: another node, another environment, without gate, from a cache, after a splay.
    class Settings
      ROOT = File.realpath('../../..', __dir__)

      class << self
        # The node's own hiera.yaml, once a run has one that is made of it.
        attr_accessor :site_hiera
      end

      # The version of this module.
      def self.version
        @version ||= JSON.parse(File.read(File.join(ROOT, 'metadata.json')))['version']
      end

      # Puppet compiles an empty catalog, silently, where the manifest does not exist.
      def self.check_manifest(node)
        manifest = Puppet.lookup(:current_environment).manifest
        return if manifest == Puppet::Node::Environment::NO_MANIFEST || File.exist?(manifest)
        return unless node.classes.nil? || node.classes.empty?

        raise Puppet::Error, "tutti: the environment #{node.environment.name} has no manifest: #{manifest} does not exist"
      end

      def initialize(order, dir)
        @order = order
        @dir = dir
      end

      # The command line of `puppet`.
      def arguments
        [*(@order.agent? ? agent : standalone), *directories, '--no-splay', '--no-use_cached_catalog', '--detailed-exitcodes',
         (@order.noop? ? '--noop' : '--no-noop'), *('--debug' if @order.debug?),
         *(['--agent_disabled_lockfile', @order.disabled_lockfile] if @order.disabled_lockfile)]
      end

      # What needs Puppet's settings to be read first. Called before the application sets itself up.
      def apply
        refuse_contradictions
        refuse_strange_servers if @order.agent?
        all = { tags: @order.tags.join(','), skip_tags: @order.skip_tags.join(',') }
        all.merge!(@order.agent? ? { runtimeout: runtimeout } : of_standalone)
        all.each { |name, value| Puppet[name] = value unless value.nil? }
      end

      # Makes sure that Tutti is asked for exports and gets the catalog, whatever puppet.conf and routes.yaml say.
      def route
        return if @order.agent?

        Puppet::Resource::Catalog.indirection.terminus_class = :compiler
        Puppet::Resource::Catalog.indirection.cache_class = :tutti
        Puppet::Node::Facts.indirection.cache_class = :tutti
        Puppet::Resource.indirection.terminus_class = :tutti
        refuse_other_modules
      end

      private

      def directories
        @order.directories.flat_map { |name, path| ["--#{name}", path] }
      end

      # One run with a catalog of the Puppet Server's, a new one or none: with the cache, a compile error would end with the
      # old catalog applied. Where an environment was asked for, no other one will do.
      def agent
        environment = @order.environment.to_s
        ['agent', '--onetime', '--no-daemonize', '--no-usecacheonfailure', '--waitforcert', '0', '--job-id', @order.run,
         *(['--environment', environment, '--strict_environment_mode'] unless environment.empty?)]
      end

      def standalone
        empty = File.join(@dir, 'empty')
        FileUtils.mkdir_p(empty, mode: 0o700)
        ['apply', '--environmentpath', @order.environmentpath, '--environment', @order.environment,
         '--certname', @order.node, '--libdir', empty, '--pluginfactdest', empty,
         '--storeconfigs', '--storeconfigs_backend', 'tutti', '--catalog_terminus', 'compiler', '--no-resubmit_facts']
      end

      def of_standalone
        { node_name_fact: '', node_name_value: @order.node, data_binding_terminus: 'hiera',
          preprocess_deferred: preprocess_deferred, factpath: factpath, hiera_config: hiera_config }
      end

      # The step's timeout counts, unless the site has one for its agents.
      def runtimeout
        in_config(:runtimeout) ? nil : 0
      end

      def refuse_contradictions
        if set?(:noop, true) && @order.mode == 'apply'
          raise Refused, 'puppet.conf sets noop = true: this node may not be changed; order a noop run, or remove the setting'
        end

        # Without one, `puppet agent` has a name of its own: its certificate's.
        certname = in_config(:certname) || (Puppet[:certname] if @order.agent?)
        return if certname.nil? || certname == @order.node

        raise Refused, "puppet.conf names this node #{certname.inspect}, the order names it #{@order.node.inspect}"
      end

      # Without a CA, `puppet agent` takes that of whoever answers. Whose code runs on a node is not for an order to begin.
      def refuse_strange_servers
        missing = %i[localcacert hostcert].map { |name| Puppet[name] }.reject { |path| File.exist?(path) }
        return if missing.empty?

        raise Refused, "this node has no certificate of a Puppet Server yet (#{missing.join(', ')} does not exist); " \
                       'run `puppet agent --test` on it once'
      end

      # A setting as puppet.conf has it, in the sections that `puppet apply` and `puppet agent` read.
      def in_config(name)
        %i[user agent main].map { |section| Puppet.settings.set_in_section(name, section) }.compact.first
      end

      def set?(name, value)
        in_config(name).to_s == value.to_s
      end

      # OpenVox 9 resolves Deferred values before applying again, as Puppet 7 did and Puppet 8 does not.
      def preprocess_deferred
        return nil if in_config(:preprocess_deferred)

        Puppet.version.to_i < 8
      end

      # Facts of an old pluginsync are not part of this run's code.
      def factpath
        in_config(:factpath) ? nil : File.join(@dir, 'empty')
      end

      def hiera_config
        path = File.join(@dir, 'hiera.yaml')
        self.class.site_hiera = Puppet[:hiera_config]
        File.write(path, YAML.dump(HieraConfig.merged(self.class.site_hiera)), perm: 0o600)
        path
      end

      def refuse_other_modules
        environment = Puppet.lookup(:current_environment)
        found = environment.modulepath.map { |path| File.join(path, 'tutti') }.select { |path| File.directory?(path) }
        others = found.reject { |path| File.realpath(path) == ROOT }
        unless others.empty?
          raise Refused, "the environment #{environment.name} has a module `tutti` of its own: #{others.join(', ')}; " \
                         "the agent ships #{ROOT}; remove the other one"
        end
        return unless found.empty?

        raise Refused, "the module `tutti` (#{ROOT}) is not on the modulepath: #{environment.modulepath.join(':')}"
      end
    end
  end
end
