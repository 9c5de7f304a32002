# frozen_string_literal: true

module PuppetX
  module Tutti
    # Converts shared values between a catalog and the protocol.
    module Values
      # Returns the keys that a compiled catalog publishes. After a good run the server withdraws values
      # that the node published before and no longer declares. A resource that Puppet did not apply still
      # counts as declared.
      # @return [Array<String>] sorted
      def self.of(catalog)
        catalog.resources.select { |resource| resource.type == 'Tutti_value' && !resource.virtual? && !absent?(resource) }
               .map { |resource| (resource[:key] || resource.title).to_s }.sort.uniq
      end

      def self.absent?(resource)
        resource[:ensure].to_s == 'absent'
      end
      private_class_method :absent?
    end
  end
end
