# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # This module encodes parameter values in Puppet's rich data, which is JSON that keeps every type. Puppet 7
    # and 8 write rich data in the same way. References to resources are Pcore types, as in the Puppet
    # language. Puppet's own catalogs convert such references to strings.
    module RichData
      OPTIONS = { rich_data: true, symbol_as_string: true, local_reference: false, type_by_reference: true }.freeze

      def self.encode(value)
        Puppet::Pops::Serialization::ToDataConverter.convert(prepare(value), OPTIONS)
      end

      def self.decode(data)
        references(Puppet::Pops::Serialization::FromDataConverter.convert(order(data)))
      end

      # Returns whether encoded data contains a Sensitive at any depth.
      def self.sensitive?(data)
        case data
        when Hash then data['__ptype'] == 'Sensitive' || data.any? { |key, value| sensitive?(key) || sensitive?(value) }
        when Array then data.any? { |value| sensitive?(value) }
        else false
        end
      end

      # Puppet creates objects from their attributes by position, but JSON from the server may have its keys in any
      # order.
      def self.order(data)
        case data
        when Array then data.map { |item| order(item) }
        when Hash
          names = attributes(data['__ptype'])
          data.map { |key, item| [key, order(item)] }.sort_by.with_index { |(key, _), at| [names.index(key) || -1, at] }.to_h
        else data
        end
      end
      private_class_method :order

      # Returns the attributes of a type in the order of its constructor. The list is empty if the type is not an
      # object.
      def self.attributes(name)
        return [] unless name.is_a?(String) && !name.match?(/\A(Hash|Sensitive|Default|Symbol)\z/)

        type = Puppet::Pops::Types::TypeParser.singleton.parse(name)
        type.is_a?(Puppet::Pops::Types::PObjectType) ? type.parameter_info(type.implementation_class).first : []
      end
      private_class_method :attributes

      # Returns a value in the form of the Puppet language. References are types, and text has an encoding.
      def self.prepare(value)
        case value
        when Puppet::Resource then type_of(value)
        when Array then value.map { |item| prepare(item) }
        when Hash then value.to_h { |key, item| [prepare(key), prepare(item)] }
        when String then text(value)
        when :undef then nil
        else value
        end
      end

      # Strings from the system, like the strings in the fact networking.ip, have no encoding, and Puppet would
      # convert them to the type Binary. A real Binary of a manifest is an object and not a string from the
      # system.
      def self.text(string)
        return string unless string.encoding == Encoding::BINARY

        utf8 = string.dup.force_encoding(Encoding::UTF_8)
        utf8.valid_encoding? ? utf8 : string
      end
      private_class_method :text

      def self.type_of(resource)
        factory = Puppet::Pops::Types::TypeFactory
        return factory.host_class(resource.title.to_s.downcase) if resource.type == 'Class'

        factory.resource(resource.type, resource.title.to_s)
      end
      private_class_method :type_of

      def self.references(value)
        case value
        when Puppet::Pops::Types::PResourceType
          value.title.nil? ? value : Puppet::Resource.new(value.type_name, value.title)
        when Puppet::Pops::Types::PClassType
          value.class_name.nil? ? value : Puppet::Resource.new('Class', value.class_name)
        when Array then value.map { |item| references(item) }
        when Hash then value.to_h { |key, item| [references(key), references(item)] }
        else value
        end
      end
      private_class_method :references
    end
  end
end
