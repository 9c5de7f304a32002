# frozen_string_literal: true

require 'digest'
require 'find'
require 'json'
require 'puppet'
require 'yaml'
require_relative 'settings'

module PuppetX
  module Tutti
    # This class finds the files that a compile uses from the node and not from the pushed code. There are three kinds:
    # modules of $basemodulepath with the manifest, Hiera data with the hiera.yaml that names this data, and
    # puppet.conf. Each kind counts as one more fact. For example, a node becomes suspect after a package has installed
    # another version of a module. Files are compared by path, size and change time, without reading them. The private
    # files of a version control system are left out. Of puppet.conf only the settings count.
    class Outside
      MODULES = 'modules_outside_the_code'
      HIERA = 'hiera_data_outside_the_code'
      SETTINGS = 'settings_of_puppet_conf'
      # The digest covers at most LIMIT files of each kind.
      LIMIT = 50_000
      APART = %w[.git .svn .hg].freeze

      # @param environment [Puppet::Node::Environment, nil] nil: a Puppet Server compiles, with its own modules and data
      # @param volatile [Array<String>] names that are not asked for
      def initialize(environment, volatile = [])
        @environment = environment
        @volatile = volatile
      end

      # @return [Hash{String => String}] digests by name; nothing where there is nothing outside
      def facts
        looks = { MODULES => -> { digest(modules + outside([@environment.manifest])) },
                  HIERA => -> { digest(data + outside([site_hiera])) }, SETTINGS => -> { settings } }
        looks.select { |name, _| looks_at?(name) }.transform_values(&:call).compact
      end

      # @return [Array<String>] the directories to be watched, none in another one, the node's hiera.yaml, and puppet.conf
      def directories
        dirs = (looks_at?(HIERA) ? data + behind_links : []) + (looks_at?(MODULES) ? modulepath + modules : [])
        dirs = dirs.select { |dir| File.directory?(dir) }.map { |dir| File.realpath(dir) }.uniq
        dirs = dirs.reject { |dir| dirs.any? { |other| dir.start_with?("#{other}/") } }
        dirs + (looks_at?(HIERA) ? outside([site_hiera]) : []) + (looks_at?(SETTINGS) ? [Puppet[:config]] : [])
      end

      private

      def looks_at?(name)
        !@volatile.include?(name) && (@environment || name == SETTINGS)
      end

      # Returns the digest of the settings in the sections of puppet.conf that this program reads, as they are written
      # there. The launcher's own settings are left out, because they have precedence.
      # @return [String, nil] nil: there are no such settings
      def settings
        sections = [Puppet.run_mode.name, :main]
        names = Puppet.settings.map { |name, _| name }.select { |name| Puppet.settings.set_by_cli(name).nil? }.sort
        said = names.to_h { |name| [name, sections.map { |section| Puppet.settings.set_in_section(name, section) }.compact.first] }.compact
        "sha256:#{Digest::SHA256.hexdigest(JSON.generate(said))}" unless said.empty?
      end

      def modulepath
        @modulepath ||= outside(@environment.modulepath)
      end

      # Returns the real directories of modules, because many are links. Tutti's own module is left out, because
      # it has a version.
      def modules
        @modules ||= modulepath.flat_map { |dir| Dir.glob(File.join(dir, '*')) }.sort.select { |path| File.directory?(path) }
                               .map { |path| File.realpath(path) } - [Settings::ROOT]
      end

      def data
        @data ||= outside(configs.flat_map { |file| places(file) }.uniq).map { |path| File.realpath(path) }
      end

      # The node's own hiera.yaml. A run has its own hiera.yaml, which is made from this file.
      def site_hiera
        Settings.site_hiera || Puppet[:hiera_config]
      end

      # Returns the hiera.yaml files of the node, of the environment and of modules.
      def configs
        [Puppet[:hiera_config], of_environment].compact + @environment.modulepath.flat_map { |dir| Dir.glob(File.join(dir.to_s, '*', 'hiera.yaml')).sort }
      end

      # Some data files are links. Returns the directories of the files to which they lead.
      def behind_links
        links = data.flat_map { |root| files(root).first(LIMIT) }.select { |path| File.symlink?(path) && File.file?(path) }
        links.map { |path| File.dirname(File.realpath(path)) }
      end

      def of_environment
        root = @environment.configuration&.path_to_env
        File.join(root.to_s, 'hiera.yaml') if root
      end

      # Returns the directories and files of the levels in a hiera.yaml.
      def places(file)
        hiera = YAML.safe_load(File.read(file), permitted_classes: [Symbol], aliases: true)
        levels = [*hiera['hierarchy'], hiera['defaults']].grep(Hash)
        paths = levels.flat_map { |level| level.values_at('datadir', 'path', 'paths', 'glob', 'globs') << [*level['mapped_paths']][2] }
        paths.flatten.compact.flat_map { |path| matching(path.to_s) }
      rescue SystemCallError, Psych::Exception, NoMethodError, TypeError
        [] # the compile says what is wrong with it
      end

      # Returns the existing files that match a path with any values of its variables. If the path begins with a
      # variable, the result is empty.
      def matching(path)
        pattern = path.gsub(/%\{[^}]*\}/, '*')
        pattern.start_with?('/') && !pattern.start_with?('/*') ? Dir.glob(pattern).sort : []
      end

      def outside(paths)
        code = "#{Puppet[:environmentpath]}/"
        paths.map(&:to_s).select { |path| path.start_with?('/') && path != '/' && !path.start_with?(code) && File.exist?(path) }
      end

      # @return [String, nil] nil: there are no files
      def digest(roots)
        lines = roots.lazy.flat_map { |root| files(root) }.first(LIMIT).map { |path| line(path) }.compact
        "sha256:#{Digest::SHA256.hexdigest(lines.sort.join)}" unless lines.empty?
      end

      # Follows links to directories, and visits each directory once.
      def files(root)
        Enumerator.new do |out|
          roots = [root]
          roots.each do |dir|
            Find.find(dir, ignore_error: true) do |path|
              Find.prune if APART.include?(File.basename(path))
              out << path
              roots << File.realpath(path) if File.symlink?(path) && File.directory?(path) && !roots.include?(File.realpath(path))
            end
          end
        end.lazy
      end

      # @return [String, nil] nil: a directory, which its files stand for
      def line(path)
        stats = [File.lstat(path)]
        return if stats.first.directory?

        stats << File.stat(path) if stats.first.symlink? && File.file?(path) # what the link leads to may change by itself
        "#{path}\0#{stats.map { |stat| "#{stat.size} #{stat.ctime.to_i}.#{stat.ctime.nsec}" }.join(' ')}\n"
      rescue SystemCallError => e
        "#{path}\0#{e.class}\n" unless e.is_a?(Errno::ENOENT) # it has just gone
      end
    end
  end
end
