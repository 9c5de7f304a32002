# frozen_string_literal: true

require 'pathname'
require 'yaml'
require_relative 'errors'

module PuppetX
  module Tutti
    # This module makes the global hiera.yaml of a run. Tutti's level is the first, and the levels
    # of the site's own file follow.
    module HieraConfig
      LEVEL = { 'name' => 'Tutti', 'lookup_key' => 'tutti::hiera' }.freeze
      # Puppet uses this hierarchy if the site has no file or no hierarchy.
      DEFAULT = [{ 'name' => 'Common', 'path' => 'common.yaml' }].freeze

      # @param path [String] the site's file, which need not exist
      # @return [Hash] the content of the run's file
      # @raise [Refused] when the site's file cannot be merged
      def self.merged(path)
        site = File.exist?(path) ? load(path) : {}
        defaults = site['defaults'] || {}
        levels = (site['hierarchy'] || DEFAULT).map { |level| anchored(level, defaults, File.dirname(path)) }
        site.merge('version' => 5, 'hierarchy' => [LEVEL] + levels)
      end

      def self.load(path)
        site = YAML.safe_load(File.read(path), permitted_classes: [Symbol], aliases: true) || {}
        version = site['version'] if site.is_a?(Hash)
        return site if version == 5 || site == {}

        raise Refused, "#{path} is not Hiera version 5 (version: #{version.inspect}); " \
                       'convert it, or remove it if the environments have their own'
      rescue SystemCallError, Psych::Exception => e
        raise Refused, "cannot read the global Hiera file #{path}: #{e.message}"
      end
      private_class_method :load

      # Paths in a hiera.yaml are relative to its directory, but the merged file is in another
      # directory.
      def self.anchored(level, defaults, root)
        return level unless level.is_a?(Hash)

        level.merge('datadir' => (Pathname(root) + (level['datadir'] || defaults['datadir'] || 'data').to_s).to_s)
      end
      private_class_method :anchored
    end
  end
end
