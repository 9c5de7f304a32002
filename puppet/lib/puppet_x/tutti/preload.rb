# frozen_string_literal: true

module PuppetX
  module Tutti
    # Preload is the code that the warm parent has loaded for its children. The warm parent loads only
    # code of Puppet, in an empty environment and without settings. No fact is resolved. If a run would
    # have loaded some of this code differently, the run must not use the loaded code
    # (docs/adr/0014-warm-runner.md).
    class Preload
      # FILES are files other than types that a run loads when it needs them.
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
      # SYSTEM lists files that are read only once, when code is loaded or first used. The files decide which
      # facts Facter has, how OpenSSL works and which authorities it trusts. The files also decide where
      # users are looked up, and the time zone.
      SYSTEM = %w[/etc/os-release /usr/lib/os-release /etc/nsswitch.conf].freeze
      # Matches a type, its parts and its providers.
      OF_TYPE = %r{\Apuppet/(?:type/(?<type>[^/]+?)(?:\.rb|/)|provider/(?<type>[^/]+)/)}.freeze

      # `ahead` is the collection of facts for the next child. If `ahead` is nil, the child collects its own
      # facts.
      # @return [Ahead, nil]
      attr_accessor :ahead

      def self.call
        began = Process.clock_gettime(Process::CLOCK_REALTIME_COARSE, :nanosecond) # the clock of file systems
        missing = []
        tracer = TracePoint.new(:raise) { |point| missing << point.raised_exception.path if point.raised_exception.is_a?(LoadError) }
        premises = tracer.enable { load_all }
        (Thread.list - [Thread.current]).each { |thread| thread.kill.join } # a library may have started threads; a child would not have them
        new(premises, missing.compact.uniq.reject { |name| there?(name) }, Time.at(0, began, :nsec))
      end

      # Returns whether a library can be required. Up to version 3.0, Ruby raises an error if it cannot find the
      # library.
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

      # @param missing [Array<String>] libraries that Puppet searched for and that do not exist
      # @param began [Time] when the loading began; a file with a later time may differ from the loaded code
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

      # Returns the first loaded file that has changed on disk. This includes files that changed during the loading,
      # because a package is not unpacked in one moment.
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

      # A child forgets everything that a run finds out itself.
      def forget
        @premises.forget
        TypeEnvironment.await
        FactSearch.install
        Puppet.runtime[:facter].reset
      end

      # A child calls this method after its settings are known.
      # @return [String, nil] a text about code that the child would have loaded differently
      def overridden
        certain { shadowed || @premises.refuted }
      end

      # A child calls this method after it has its facts.
      # @return [String, nil] a text about code that the child would have loaded differently
      def refuted
        certain { @premises.refuted_by_facts }
      end

      # Finds files of modules or of `libdir` that Puppet would load in place of the loaded files or in addition to
      # them. If a plugin belongs to a type, the type is unloaded, and Puppet loads the type again when Puppet needs
      # it. Other files cannot be loaded again.
      # @return [String, nil] a text about the first file that cannot be loaded again
      def shadowed
        files = @seen = plugins
        files.each { |name, file| return "#{file} is loaded instead of what Puppet has" unless name.match?(OF_TYPE) }
        files.keys.map { |name| name[OF_TYPE, :type] }.uniq.each { |type| unload(type) }
        nil
      end

      # A child for `puppet agent` calls this method after it has got the plugins. By then the child has loaded some
      # types.
      # @return [String, nil] a text about a file that came with the plugins
      def synced
        certain do
          file = plugins.find { |name, _| !@seen.key?(name) }&.last
          "#{file} came with the plugins, and is loaded instead of, or beside, what Puppet has" if file
        end
      end

      private

      # A failed comparison counts as a difference and is not an error. For example, a file was removed in
      # between, or its name is not valid text.
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
            next unless File.exist?(file) # for example, the lock of an editor is a link without a target

            found[name] ||= file unless File.realpath(file).start_with?("#{own}/")
          end
        end
      end

      # Reads a directory only if it can contain a loaded file's name, because a glob of all directories takes longer
      # than all other checks.
      # @return [Array<String>] the Ruby files of a directory that are in folders from which something is loaded
      def names_in(dir, folders = @tree, prefix = '')
        Dir.children(dir).sort.flat_map do |child|
          inner = folders[child]
          next names_in(File.join(dir, child), inner, "#{prefix}#{child}/") if inner

          child.end_with?('.rb') ? ["#{prefix}#{child}"] : []
        end
      rescue SystemCallError
        [] # the directory does not exist, or is not a directory
      end

      # Removes a type from Puppet's memory.
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
        return [] if Puppet.run_mode.agent? # the plugins of `puppet agent` are in libdir

        environment = Puppet.lookup(:environments).get(Puppet[:environment])
        environment ? Puppet::Util::Autoload.module_directories(environment) : []
      end

      # Maps files to the names by which Ruby searches for them. A file that `require_relative` loads has its real path.
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

      # Returns an openssl.cnf and the files that it includes: a file, or all files of a directory
      # (config(5ssl)). Distributions put settings for all programs into included files.
      def included(conf, found = [])
        found << conf
        File.foreach(conf, encoding: 'BINARY') do |line|
          path = line[/\A\s*\.include[\s=]+(\S+)/, 1]
          next if path.nil? || found.include?(path)

          File.directory?(path) ? found.concat([path, *Dir.glob("#{path}/*.{cnf,conf}")]) : included(path, found)
        end
        found
      rescue SystemCallError
        found # the file does not exist
      end

      # Returns the file with the authorities that Ruby trusts by default (Net::HTTP). A directory of authorities is
      # searched only when it is needed.
      def trust
        [ENV.fetch(OpenSSL::X509::DEFAULT_CERT_FILE_ENV, OpenSSL::X509::DEFAULT_CERT_FILE)]
      end

      # Returns the directories where Ruby could find a new file in place of a loaded file.
      def directories
        @path + @path.product(@folders).map { |dir, folder| File.join(dir, folder) }.select { |dir| File.directory?(dir) } +
          Gem::Specification.dirs
      end

      def stamps
        @once.each_with_object({}) do |file, found|
          stat = File.stat(file)
          found[file] = [stat.ctime, stat.ino, stat.size] # without mtime, because a package can set any mtime
        rescue SystemCallError
          nil # the file does not exist
        end
      end
    end
  end
end
