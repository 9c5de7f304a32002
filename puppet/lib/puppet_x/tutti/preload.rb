# frozen_string_literal: true

module PuppetX
  module Tutti
    # What the warm parent has loaded for its children. Only code of Puppet's, in an empty environment and without settings, and no
    # fact is resolved. What of it a run would have loaded otherwise, that run is not to use (docs/adr/0014-warm-runner.md).
    class Preload
      # What a run needs besides the types, and loads when it comes to it.
      FILES = %w[
        puppet/util/command_line puppet/application/apply puppet/application/agent puppet/agent puppet/daemon
        puppet/indirector/catalog/compiler puppet/indirector/catalog/rest puppet/indirector/catalog/store_configs
        puppet/indirector/facts/facter puppet/indirector/facts/store_configs puppet/indirector/resource/store_configs
        puppet/indirector/node/plain puppet/indirector/node/rest puppet/indirector/report/rest puppet/indirector/report/yaml
        puppet/indirector/file_metadata/file_server puppet/indirector/file_content/file_server puppet/indirector/file_metadata/rest
        puppet/indirector/file_content/rest puppet/parser/e4_parser_adapter puppet/datatypes/impl/error puppet/reports/store digest/sha2
      ].freeze
      OWN = %w[hooks lock log settings events].freeze
      PROVIDER = %r{\Apuppet/provider/(?<type>[^/]+)/[^/]+\z}.freeze
      # What is read once, when code is loaded or first used: which facts Facter has, how OpenSSL speaks and whom it trusts, where users are
      # looked for, what time it is here.
      SYSTEM = %w[/etc/os-release /usr/lib/os-release /etc/nsswitch.conf].freeze
      # A type, its parts and its providers.
      OF_TYPE = %r{\Apuppet/(?:type/(?<type>[^/]+?)(?:\.rb|/)|provider/(?<type>[^/]+)/)}.freeze

      # What is collected ahead for the child that is made next; nil: it collects its own facts.
      # @return [Ahead, nil]
      attr_accessor :ahead

      def self.call
        began = Process.clock_gettime(Process::CLOCK_REALTIME_COARSE, :nanosecond) # the clock of file systems
        missing = []
        tracer = TracePoint.new(:raise) { |point| missing << point.raised_exception.path if point.raised_exception.is_a?(LoadError) }
        premises = tracer.enable { load_all }
        (Thread.list - [Thread.current]).each { |thread| thread.kill.join } # a library's; no child would have them
        new(premises, missing.compact.uniq.reject { |name| there?(name) }, Time.at(0, began, :nsec))
      end

      # Whether a library can be required; Ruby raises where it cannot, up to 3.0.
      def self.there?(name)
        !$LOAD_PATH.resolve_feature_path(name).nil?
      rescue LoadError
        false
      end

      def self.load_all
        require 'puppet'
        require 'facter'
        require_relative 'fact_search'
        require_relative 'premises'
        require_relative 'type_environment'
        OWN.each { |name| require_relative name }
        Premises.during { load_types }
      end

      def self.load_types
        empty = Puppet::Node::Environment.create(:warm, [])
        Puppet.override(current_environment: empty) do
          FILES.each { |name| require name if $LOAD_PATH.any? { |dir| File.exist?(File.join(dir, "#{name}.rb")) } }
          types = Puppet::Type.typeloader
          types.files_to_load(empty).map { |file| file.chomp('.rb') }.each do |name|
            TypeEnvironment.note { Puppet::Util::Autoload.load_file(name, empty) } unless Puppet::Util::Autoload.loaded?(name)
          end
        end
        Puppet::Pops::Loaders.static_loader
      end
      private_class_method :load_all, :load_types

      # @param missing [Array<String>] libraries that were looked for, and are not there
      # @param began [Time] what is younger on disk may not be what was loaded
      def initialize(premises, missing, began)
        @premises = premises
        @missing = missing
        @path = $LOAD_PATH.dup
        @types = []
        Puppet::Type.eachtype { |type| @types << type.name.to_s }
        @files = missing.to_h { |name| ["#{name}.rb", nil] }.merge(by_name($LOADED_FEATURES))
        @folders = @files.keys.map { |name| File.dirname(name) } + @types.map { |type| "puppet/provider/#{type}" }
        @folders.uniq!
        @tree = @folders.each_with_object({}) { |folder, tree| folder.split('/').reduce(tree) { |below, part| below[part] ||= {} } }
        @once = $LOADED_FEATURES + SYSTEM + configurations + trust + directories
        @stamps = stamps
        @late = @stamps.find { |_, (changed, *)| changed >= began }&.first
      end

      # What has changed on disk of what is loaded, also while it was loaded: a package is not unpacked in one moment.
      # @return [String, nil]
      def changed
        return @late if @late

        replaced = File.foreach('/proc/self/maps').find { |line| line.match?(/\.so[.0-9]* \(deleted\)$/) }
        return replaced.split(' ', 6).last.chomp if replaced

        installed = @missing.find { |name| Preload.there?(name) }
        return installed if installed

        now = stamps
        (now.keys | @stamps.keys).find { |file| now[file] != @stamps[file] }
      end

      # In a child: forgets what a run finds out for itself.
      def forget
        @premises.forget
        TypeEnvironment.await
        FactSearch.install
        Puppet.runtime[:facter].reset
      end

      # In a child whose settings are known.
      # @return [String, nil] what it would have loaded otherwise
      def overridden
        certain { shadowed || @premises.refuted }
      end

      # In a child that has its facts.
      # @return [String, nil] what it would have loaded otherwise
      def refuted
        certain { @premises.refuted_by_facts }
      end

      # Files of modules or of `libdir` that are loaded instead of, or beside, what is loaded here, or of none. Types are loaded again,
      # then, as they are without a preload, when they come to be used; nothing else can be.
      # @return [String, nil] the first file that makes it impossible
      def shadowed
        files = @seen = plugins
        files.each { |name, file| return "#{file} is loaded instead of what Puppet has" unless name.match?(OF_TYPE) }
        files.keys.map { |name| name[OF_TYPE, :type] }.uniq.each { |type| unload(type) }
        nil
      end

      # In a child of `puppet agent`, which has loaded some of its types by now.
      # @return [String, nil] what came with the plugins
      def synced
        certain do
          file = plugins.find { |name, _| !@seen.key?(name) }&.last
          "#{file} came with the plugins, and is loaded instead of, or beside, what Puppet has" if file
        end
      end

      private

      # What cannot be compared is a doubt, too, and no reason to fail: a file went meanwhile, its name is no text.
      def certain
        yield
      rescue StandardError => e
        "it could not be compared with what is loaded: #{e.message.scrub}"
      end

      def plugins
        own = Settings::ROOT
        (module_directories + ($LOAD_PATH - @path)).each_with_object({}) do |dir, found|
          names_in(dir).each do |name|
            next unless @files.key?(name) || @types.include?(name[PROVIDER, :type])

            file = File.join(dir, name)
            next unless File.exist?(file) # a link that leads nowhere: an editor's lock

            found[name] ||= file unless File.realpath(file).start_with?("#{own}/")
          end
        end
      end

      # Looks only where there is such a folder: a glob of them all takes longer than the rest of the checks.
      # @return [Array<String>] the Ruby files of a directory that are in folders from which something is loaded
      def names_in(dir, folders = @tree, prefix = '')
        Dir.children(dir).sort.flat_map do |child|
          inner = folders[child]
          next names_in(File.join(dir, child), inner, "#{prefix}#{child}/") if inner

          child.end_with?('.rb') ? ["#{prefix}#{child}"] : []
        end
      rescue SystemCallError
        [] # it is not there, or no directory
      end

      # Puppet knows nothing of the type any more.
      def unload(type)
        Puppet::Type.rmtype(type.to_sym)
        TypeEnvironment.forget(type.to_sym)
        @files.each do |name, file|
          next unless name[OF_TYPE, :type] == type

          Puppet::Util::Autoload.loaded.delete(name.delete_suffix('.rb'))
          $LOADED_FEATURES.delete(file)
        end
      end

      def module_directories
        return [] if Puppet.run_mode.agent? # its plugins are in libdir

        environment = Puppet.lookup(:environments).get(Puppet[:environment])
        environment ? Puppet::Util::Autoload.module_directories(environment) : []
      end

      # How files are named where they are looked for. What `require_relative` loads goes by its real path.
      # @return [Hash] files by these names
      def by_name(files)
        prefixes = @path.flat_map { |dir| ["#{dir}/", ("#{File.realpath(dir)}/" if File.directory?(dir))] }.compact.uniq
        files.each_with_object({}) do |file, found|
          prefix = prefixes.find { |dir| file.start_with?(dir) }
          found[file.delete_prefix(prefix)] = file if prefix
        end
      end

      def configurations
        zone = ENV.fetch('TZ', '/etc/localtime').delete_prefix(':')
        [zone, *included(OpenSSL::Config::DEFAULT_CONFIG_FILE), (Facter::ConfigReader.send(:default_path) if defined?(Facter::ConfigReader))].compact
      end

      # An openssl.cnf with what it includes: a file, or all of a directory (config(5ssl)). There a distribution has what all its programs follow.
      def included(conf, found = [])
        found << conf
        File.foreach(conf, encoding: 'BINARY') do |line|
          path = line[/\A\s*\.include[\s=]+(\S+)/, 1]
          next if path.nil? || found.include?(path)

          File.directory?(path) ? found.concat([path, *Dir.glob("#{path}/*.{cnf,conf}")]) : included(path, found)
        end
        found
      rescue SystemCallError
        found # it is not there
      end

      # The authorities that Ruby trusts unless it is told others (Net::HTTP), in one file. What is in a directory is looked for when it is needed.
      def trust
        [ENV.fetch(OpenSSL::X509::DEFAULT_CERT_FILE_ENV, OpenSSL::X509::DEFAULT_CERT_FILE)]
      end

      # Where a file would be found before one that is loaded.
      def directories
        @path + @path.product(@folders).map { |dir, folder| File.join(dir, folder) }.select { |dir| File.directory?(dir) } +
          Gem::Specification.dirs
      end

      def stamps
        @once.each_with_object({}) do |file, found|
          stat = File.stat(file)
          found[file] = [stat.ctime, stat.ino, stat.size] # a package sets the mtime to whatever it likes
        rescue SystemCallError
          nil # one that is not a file
        end
      end
    end
  end
end
