# frozen_string_literal: true

require 'digest'
require 'find'
require 'json'
require 'pathname'
require 'puppet'
require 'yaml'
require_relative 'settings'

module PuppetX
  module Tutti
    # This class finds the files that a compile uses from the node and not from the pushed code. There are three kinds
    # of files: the first kind is modules of $basemodulepath and the manifest, the second is Hiera data and the
    # hiera.yaml files that name the data, and the third is puppet.conf. Each kind counts as one more fact. For
    # example, a node becomes suspect after a package has installed another version of a module. Files are compared by
    # path, size and change time, without reading them. The private files of a version control system are left out. Of
    # puppet.conf only the settings count.
    class Outside
      MODULES = 'modules_outside_the_code'
      HIERA = 'hiera_data_outside_the_code'
      SETTINGS = 'settings_of_puppet_conf'
      # The digest covers at most LIMIT files of each kind.
      LIMIT = 50_000
      APART = %w[.git .svn .hg].freeze

      # @param environment [Puppet::Node::Environment, nil] nil if a Puppet Server compiles with its own modules and
      #   data
      # @param volatile [Array<String>] names of volatile facts; a digest with such a name is left out
      def initialize(environment, volatile = [])
        @environment = environment
        @volatile = volatile
      end

      # @return [Hash{String => String}] digests by name; a name is missing if the node has no files of this
      #   kind outside the code
      def facts
        looks = { MODULES => -> { digest(modules + beyond_the_code([@environment.manifest])) },
                  HIERA => -> { digest(data + beyond_the_code([site_hiera])) }, SETTINGS => -> { settings } }
        looks.select { |name, _| looks_at?(name) }.transform_values(&:call).compact
      end

      # Returns the paths that the agent watches, without paths inside another of these paths. A path need not exist.
      # Links are not resolved here, because a link can change at any time. The agent follows the links each time it
      # looks.
      # @return [Array<String>]
      def directories
        paths = (looks_at?(HIERA) ? data + beyond_the_code([site_hiera]) : []) +
                (looks_at?(MODULES) ? modulepath + beyond_the_code([@environment.manifest]) : []) + (looks_at?(SETTINGS) ? [Puppet[:config]] : [])
        paths.uniq.reject { |path| paths.any? { |other| path.start_with?("#{other}/") } }
      end

      private

      def looks_at?(name)
        !@volatile.include?(name) && (@environment || name == SETTINGS)
      end

      # Returns the digest of the settings in those sections of puppet.conf that this program reads. Settings that the
      # launcher itself sets are left out, because the launcher's values have precedence.
      # @return [String, nil] nil if there are no such settings
      def settings
        sections = [Puppet.run_mode.name, :main]
        names = Puppet.settings.map { |name, _| name }.select { |name| Puppet.settings.set_by_cli(name).nil? }.sort
        said = names.to_h { |name| [name, sections.map { |section| Puppet.settings.set_in_section(name, section) }.compact.first] }.compact
        "sha256:#{Digest::SHA256.hexdigest(JSON.generate(said))}" unless said.empty?
      end

      def modulepath
        @modulepath ||= beyond_the_code(@environment.modulepath)
      end

      # Returns the real directories of modules, because many are links. Tutti's own module is left out, because its
      # version is compared instead.
      def modules
        @modules ||= modulepath.flat_map { |dir| Dir.glob(File.join(dir, '*')) }.sort.select { |path| File.directory?(path) }
                               .map { |path| File.realpath(path) } - [Settings::ROOT]
      end

      def data
        @data ||= beyond_the_code(configs.flat_map { |file| places(file) }.uniq)
      end

      # Returns the node's own hiera.yaml. A run uses another hiera.yaml, which is made from this file.
      def site_hiera
        Settings.site_hiera || Puppet[:hiera_config]
      end

      # Returns the hiera.yaml files of the node, of the environment and of modules.
      def configs
        [Puppet[:hiera_config], of_environment].compact + @environment.modulepath.flat_map { |dir| Dir.glob(File.join(dir.to_s, '*', 'hiera.yaml')).sort }
      end

      def of_environment
        root = @environment.configuration&.path_to_env
        File.join(root.to_s, 'hiera.yaml') if root
      end

      # Returns the directories and files of the levels in a hiera.yaml, as Puppet resolves them. Data in the
      # directory of a module is left out, because the digest of the modules covers this data.
      def places(file)
        root = Pathname(File.dirname(file))
        hiera = YAML.safe_load(File.read(file), permitted_classes: [Symbol], aliases: true)
        default = hiera['defaults'].to_h['datadir'] || 'data'
        paths = [{}, *hiera['hierarchy']].flat_map { |level| of_level(level, root + (level['datadir'] || default)) }
        paths = paths.reject { |path| path.start_with?("#{root}/") } unless file == Puppet[:hiera_config]
        paths.flat_map { |path| matching(path) }
      rescue SystemCallError, Psych::Exception, NoMethodError, TypeError
        [] # the compile reports the error in the file
      end

      def of_level(level, datadir)
        paths = level.values_at('path', 'paths', 'glob', 'globs') << [*level['mapped_paths']][2]
        paths = paths.flatten.compact.map { |path| (datadir + path).to_s }
        [datadir.to_s, *paths.reject { |path| path.start_with?("#{datadir}/") }]
      end

      # Returns the existing files that match a path with any values of its variables, or the path itself if it has no
      # variables. If the path begins with a variable, the result is empty.
      def matching(path)
        pattern = path.gsub(/%\{[^}]*\}/, '*')
        return [] if pattern.start_with?('/*')

        pattern.match?(/[*?\[{]/) ? Dir.glob(pattern).sort : [pattern]
      end

      def beyond_the_code(paths)
        code = "#{Puppet[:environmentpath]}/"
        paths.map(&:to_s).select { |path| path.start_with?('/') && path != '/' && !path.start_with?(code) }
      end

      # @return [String, nil] nil if there are no files
      def digest(roots)
        roots = roots.select { |root| File.exist?(root) }.map { |root| File.realpath(root) }.uniq
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

      # @return [String, nil] nil for a directory, because its files have lines of their own
      def line(path)
        stats = [File.lstat(path)]
        return if stats.first.directory?

        stats << File.stat(path) if stats.first.symlink? && File.file?(path) # the target may change although the link stays
        "#{path}\0#{stats.map { |stat| "#{stat.size} #{stat.ctime.to_i}.#{stat.ctime.nsec}" }.join(' ')}\n"
      rescue SystemCallError => e
        "#{path}\0#{e.class}\n" unless e.is_a?(Errno::ENOENT) # the file was removed in the meantime
      end
    end
  end
end
