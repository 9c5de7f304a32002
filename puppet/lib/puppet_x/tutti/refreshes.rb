# frozen_string_literal: true

module PuppetX
  module Tutti
    # This class finds the resources that Puppet refreshes after a resource has changed.
    class Refreshes
      # @param graph [Puppet::Graph::RelationshipGraph] a graph with a whit for the beginning and the end of each
      #   container
      def initialize(graph)
        @graph = graph
        @behind = {} # whit → references, because all resources of a class notify the same resources
      end

      # @return [Array<String>] references; empty for a resource that Puppet must not change
      def of(resource)
        return [] if resource.noop?

        resource.self_refresh? && !resource.deleting? ? [resource.ref, *behind(resource)] : behind(resource)
      end

      # Returns whether Puppet can refresh a resource, and the code does not forbid the refresh.
      def self.of?(resource)
        resource.respond_to?(:refresh) && !resource.noop?
      end

      private

      def behind(vertex)
        @graph.adjacent(vertex, direction: :out, type: :edges).flat_map do |edge|
          target = edge.target
          next [] unless edge.callback && target.respond_to?(edge.callback)
          next target.noop? ? [] : [target.ref] unless target.is_a?(Puppet::Type::Whit)

          @behind[target] ||= behind(target)
        end.uniq
      end
    end
  end
end
