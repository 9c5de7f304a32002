# frozen_string_literal: true

module PuppetX
  module Tutti
    # Shared values between a catalog and the protocol.
    module Values
      # The keys that a compiled catalog wants published. What a node published before and no longer declares is
      # withdrawn after a good run; a resource that was not applied is declared all the same.
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
