# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # Reports two nodes that export the same resource to a node that collects both. Puppet refuses a catalog with
    # duplicates, but does not say which nodes export the resources.
    module Duplicates
      # @param found [Array<Puppet::Parser::Resource>] the resources that a collector gets; the collector_id of each
      #   names its exporter
      # @param place [Hash] the place of the collector in the code
      # @return [Array<Puppet::Parser::Resource>] the same resources
      # @raise [Puppet::ParseError] if two nodes export a resource, or if this node itself declares the resource
      def self.refuse(found, scope, place)
        seen = {}
        found.each do |resource|
          other = seen[resource.ref] || scope.findresource(resource.resource_type, resource.title)
          unless other.nil? || other.collector_id == resource.collector_id
            raise Puppet::ParseError.new(text(resource.ref, whose(other), whose(resource)), place['file'], place['line'])
          end

          seen[resource.ref] = resource
        end
      end

      def self.text(ref, one, two)
        "tutti: #{ref} is #{one}, and #{two}: this node collects it, and can have one only. Give each node's export a title of its own, " \
          "with the node's name in it ($trusted['certname']), or let the collector select one of them (by a tag)"
      end
      private_class_method :text

      def self.whose(resource)
        return "exported by #{resource.collector_id.split('|', 2).first}" if resource.collector_id
        return 'exported by this node, too' if resource.exported?

        place = [resource.file, resource.line].compact.join(':')
        "declared on this node#{" at #{place}" unless place.empty?}"
      end
      private_class_method :whose
    end
  end
end
