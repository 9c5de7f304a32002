# frozen_string_literal: true

require 'digest'
require 'find'
require 'puppet'
require 'yaml'
require_relative 'settings'

module PuppetX
  module Tutti
    # What a compile takes from the node and not from the pushed code: modules of $basemodulepath, a manifest and Hiera's data that lie
    # elsewhere. Each counts as one more fact: a node is suspect when a package has brought another module. Files are told apart by place,
    # size and time of change: nothing is read.
    class Outside
      MODULES = 'modules_outside_the_code'
      HIERA = 'hiera_data_outside_the_code'
      # More files of one kind are not looked at.
      LIMIT = 50_000

      # @param environment [Puppet::Node::Environment]
      def initialize(environment)
        @environment = environment
      end

      # @return [Hash{String => String}] digests by name; nothing where there is nothing outside
      def facts
        { MODULES => digest(modules + outside([@environment.manifest])), HIERA => digest(data) }.compact
      end

      # @return [Array<String>] the directories to be watched
      def directories
        [*modulepath, *modules, *data].uniq
      end

      private

      def modulepath
        @modulepath ||= outside(@environment.modulepath)
      end

      # Where modules are: many are links. Tutti's own has a version.
      def modules
        @modules ||= modulepath.flat_map { |dir| Dir.glob(File.join(dir, '*')) }.sort.select { |path| File.directory?(path) }
                               .map { |path| File.realpath(path) } - [Settings::ROOT]
      end

      def data
        @data ||= outside([Puppet[:hiera_config], of_environment].compact.flat_map { |file| datadirs(file) }.uniq)
      end

      def of_environment
        root = @environment.configuration&.path_to_env
        File.join(root.to_s, 'hiera.yaml') if root
      end

      # Where levels have their files, up to what depends on a node.
      def datadirs(file)
        hiera = YAML.safe_load(File.read(file), permitted_classes: [Symbol], aliases: true)
        levels = [*hiera['hierarchy'], hiera['defaults']].grep(Hash)
        levels.map { |level| level['datadir'].to_s.split('%{', 2).first.to_s.chomp('/') }
      rescue SystemCallError, Psych::Exception, NoMethodError, TypeError
        [] # the compile says what is wrong with it
      end

      def outside(paths)
        code = "#{Puppet[:environmentpath]}/"
        paths.map(&:to_s).select { |path| path.start_with?('/') && path != '/' && !path.start_with?(code) && File.exist?(path) }
      end

      # @return [String, nil] nil: there are no files
      def digest(roots)
        lines = roots.lazy.flat_map { |root| Find.find(root, ignore_error: true).lazy }.first(LIMIT).map { |path| line(path) }.compact
        "sha256:#{Digest::SHA256.hexdigest(lines.sort.join)}" unless lines.empty?
      end

      # @return [String, nil] nil: a directory, which its files stand for
      def line(path)
        stat = File.lstat(path)
        "#{path}\0#{stat.size} #{stat.ctime.to_i}.#{stat.ctime.nsec}\n" unless stat.directory?
      rescue Errno::ENOENT
        nil # it has just gone
      end
    end
  end
end
