# frozen_string_literal: true

require 'puppet'
require_relative 'rich_data'

module PuppetX
  module Tutti
    # Converts exported resources between a catalog and the protocol.
    module Exports
      # Returns the exports of a compiled catalog. If a parameter is or contains a Sensitive, the export
      # contains the parameter's name but not its value.
      # @return [Array<Hash>] sorted by type and title
      def self.of(catalog)
        catalog.resources.select(&:exported).map { |resource| export(resource) }
               .sort_by { |export| [export['type'], export['title']] }
      end

      # Returns a resource in the form that the compiler expects from a collector.
      # @param export [Hash] an export of another node
      def self.resource(export, scope)
        parameters = (export['parameters'] || {}).map do |name, data|
          Puppet::Parser::Resource::Param.new(name: name.to_sym, value: RichData.decode(data))
        end
        resource = Puppet::Parser::Resource.new(export['type'], export['title'], parameters: parameters, scope: scope)
        # There is one id for each origin, because the compiler asks a collector several times and must
        # recognise resources that it already has.
        resource.collector_id = origin(export)
        resource
      end

      # Returns a found resource as data for code that reads it.
      # @param resource [Puppet::Parser::Resource]
      def self.listed(resource)
        parameters = resource.to_hash.reject { |name, value| value.nil? || value == :undef || own_name?(resource, name, value) }
        { 'type' => resource.type.to_s, 'title' => resource.title.to_s,
          'parameters' => RichData.prepare(parameters.transform_keys(&:to_s)).sort.to_h,
          'tags' => resource.tags.to_a.map(&:to_s).sort, 'certname' => resource.collector_id.to_s.split('|', 2).first }
      end

      # Returns the name of a type as collectors write it.
      # @param type [String, Puppet::Pops::Types::PResourceType] the argument of a function
      # @param function [String] the name of this function, for the error
      def self.type_name(type, function)
        return type.split('::').map(&:capitalize).join('::') if type.is_a?(String)
        raise ArgumentError, "#{function}: #{type} is not a resource type without a title" if type.type_name.nil? || type.title

        type_name(type.type_name, function)
      end

      # Returns the origin of an export in the form that PuppetDB uses.
      def self.origin(export)
        [export['node'], export['type'], export['title']].join('|')
      end

      # Returns the parameters of a resource in rich data.
      # @return [Array(Hash, Array<String>)] the clear parameters, and the names of the secret parameters
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

      # Returns whether a parameter only repeats the title.
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
