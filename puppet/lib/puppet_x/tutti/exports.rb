# frozen_string_literal: true

require 'puppet'
require_relative 'rich_data'

module PuppetX
  module Tutti
    # Exported resources between a catalog and the protocol.
    module Exports
      # The exports of a compiled catalog. A parameter that is or contains a Sensitive is named, never shown.
      # @return [Array<Hash>] sorted by type and title
      def self.of(catalog)
        catalog.resources.select(&:exported).map { |resource| export(resource) }
               .sort_by { |export| [export['type'], export['title']] }
      end

      # A resource as the compiler takes it from a collector.
      # @param export [Hash] an export of another node
      def self.resource(export, scope)
        parameters = (export['parameters'] || {}).map do |name, data|
          Puppet::Parser::Resource::Param.new(name: name.to_sym, value: RichData.decode(data))
        end
        resource = Puppet::Parser::Resource.new(export['type'], export['title'], parameters: parameters, scope: scope)
        # One id per origin: the compiler asks a collector several times and must know its own again.
        resource.collector_id = origin(export)
        resource
      end

      # A resource that was found, for code that reads it.
      # @param resource [Puppet::Parser::Resource]
      def self.listed(resource)
        parameters = resource.to_hash.reject { |name, value| value.nil? || value == :undef || own_name?(resource, name, value) }
        { 'type' => resource.type.to_s, 'title' => resource.title.to_s,
          'parameters' => RichData.prepare(parameters.transform_keys(&:to_s)).sort.to_h,
          'tags' => resource.tags.to_a.map(&:to_s).sort, 'certname' => resource.collector_id.to_s.split('|', 2).first }
      end

      # A type as collectors name it.
      # @param type [String, Puppet::Pops::Types::PResourceType] what a function was given
      # @param function [String] which says so
      def self.type_name(type, function)
        return type.split('::').map(&:capitalize).join('::') if type.is_a?(String)
        raise ArgumentError, "#{function}: #{type} is not a resource type without a title" if type.type_name.nil? || type.title

        type_name(type.type_name, function)
      end

      # Whose resource an export is, in the words of PuppetDB.
      def self.origin(export)
        [export['node'], export['type'], export['title']].join('|')
      end

      # Parameters of a resource in rich data.
      # @return [Array(Hash, Array<String>)] the parameters in clear, and the names of those that are secret
      def self.parameters(resource)
        clear = {}
        sensitive = resource.sensitive_parameters.map(&:to_s)
        resource.to_hash.each do |name, value|
          next if sensitive.include?(name.to_s) || value.nil? || value == :undef
          next if own_name?(resource, name, value)

          data = RichData.encode(value)
          RichData.sensitive?(data) ? sensitive << name.to_s : clear[name.to_s] = data
        end
        [clear.sort.to_h, sensitive.uniq.sort]
      end

      # Whether a parameter only repeats the title.
      def self.own_name?(resource, name, value)
        name == resource.send(:namevar) && value == resource.title
      end
      private_class_method :own_name?

      def self.export(resource)
        clear, sensitive = parameters(resource)
        { 'type' => resource.type, 'title' => resource.title.to_s, 'tags' => resource.tags.to_a.map(&:to_s).sort,
          'parameters' => clear, 'sensitive' => sensitive, 'file' => resource.file, 'line' => resource.line }.compact
      end
      private_class_method :export
    end
  end
end
