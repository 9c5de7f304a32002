# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # This class collects the single values in the parameters of the resources that a catalog applies, at any
    # depth. The values include secrets, so no value may leave this process.
    class Leaves
      def initialize(catalog)
        @leaves = []
        catalog.resources.reject(&:virtual).each { |resource| collect(resource.to_hash.values) }
      end

      # @return [Array<String>] all addresses on a file server: every alternative of every `source`, whatever the type
      def sources
        texts.select { |text| text.b.match?(/\Apuppet:/in) } # an invalid string matches no pattern
      end

      # @return [Array<String>] all strings
      def texts
        @leaves.grep(String)
      end

      # Returns whether some value is resolved only while Puppet applies the catalog.
      def deferred?
        deferred = Puppet::Pops::Types::TypeFactory.deferred.implementation_class
        @leaves.any?(deferred)
      end

      private

      def collect(value)
        case value
        when Array then value.each { |item| collect(item) }
        when Hash then value.each { |key, item| [key, item].each { |part| collect(part) } }
        when Puppet::Pops::Types::PSensitiveType::Sensitive then collect(value.unwrap)
        else @leaves << value
        end
      end
    end
  end
end
