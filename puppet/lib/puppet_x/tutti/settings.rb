# frozen_string_literal: true

require 'fileutils'
require 'puppet'
require_relative 'hiera_config'

module PuppetX
  module Tutti
    # Settings are Puppet's settings for one run. The run uses the site's puppet.conf with exceptions.
    # The run ignores settings that would make the run different from the order: another node or
    # environment, no gate, a cache, or a splay.
    class Settings
      ROOT = File.realpath('../../..', __dir__)

      class << self
        # `site_hiera` is the path of the node's own hiera.yaml, if the run uses a merged file that was made from it.
        attr_accessor :site_hiera
      end

      # Returns the version of this module.
      def self.version
        @version ||= JSON.parse(File.read(File.join(ROOT, 'metadata.json')))['version']
      end

      # If the manifest does not exist, Puppet compiles an empty catalog without an error.
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

      # Returns the arguments for the command line of `puppet`.
      def arguments
        [*(@order.agent? ? agent : standalone), *directories, '--no-splay', '--no-use_cached_catalog', '--detailed-exitcodes',
         (@order.noop? ? '--noop' : '--no-noop'), *('--debug' if @order.debug?),
         *(['--agent_disabled_lockfile', @order.disabled_lockfile] if @order.disabled_lockfile)]
      end

      # Does everything that is possible only after Puppet has read its settings. The caller calls this method
      # before the application's own setup.
      def apply
        refuse_contradictions
        refuse_strange_servers if @order.agent?
        all = { tags: @order.tags.join(','), skip_tags: @order.skip_tags.join(',') }
        all.merge!(@order.agent? ? { runtimeout: runtimeout } : of_standalone)
        all.each { |name, value| Puppet[name] = value unless value.nil? }
      end

      # Makes sure that collectors ask Tutti and that Tutti gets the catalog, regardless of puppet.conf and routes.yaml.
      def route
        return if @order.agent?

        Puppet::Node.indirection.terminus_class = :plain if @order.enc? # one ENC decides, and this is the server's
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

      # Returns the arguments for one run with a new catalog of the Puppet Server. The cache is off, because with
      # the cache Puppet would apply the old catalog after a compile error. If the order names an environment, only
      # this environment may be used.
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

      # If the site has set no timeout for its agents, only the step's timeout applies.
      def runtimeout
        in_config(:runtimeout) ? nil : 0
      end

      def refuse_contradictions
        if set?(:noop, true) && @order.mode == 'apply'
          raise Refused, 'puppet.conf sets noop = true: this node may not be changed; order a noop run, or remove the setting'
        end

        # Without the setting certname, `puppet agent` uses the name in its certificate.
        certname = in_config(:certname) || (Puppet[:certname] if @order.agent?)
        return if certname.nil? || certname == @order.node

        raise Refused, "puppet.conf names this node #{certname.inspect}, the order names it #{@order.node.inspect}"
      end

      # Without a CA, `puppet agent` trusts the CA of any server that answers. An order must not decide whose
      # code runs on a node.
      def refuse_strange_servers
        missing = %i[localcacert hostcert].map { |name| Puppet[name] }.reject { |path| File.exist?(path) }
        return if missing.empty?

        raise Refused, "this node has no certificate of a Puppet Server yet (#{missing.join(', ')} does not exist); " \
                       'run `puppet agent --test` on it once'
      end

      # Returns a setting of puppet.conf, from the sections that `puppet apply` and `puppet agent` read.
      def in_config(name)
        %i[user agent main].map { |section| Puppet.settings.set_in_section(name, section) }.compact.first
      end

      def set?(name, value)
        in_config(name).to_s == value.to_s
      end

      # OpenVox 9 resolves Deferred values before applying, like Puppet 7. Puppet 8 resolves Deferred values later.
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
