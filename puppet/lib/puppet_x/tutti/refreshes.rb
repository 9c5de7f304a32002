# frozen_string_literal: true

module PuppetX
  module Tutti
    # This class finds the resources that Puppet refreshes after a resource has changed.
    class Refreshes
      # MOST is a limit, because each resource of a class lists everything that the class notifies.
      MOST = 100

      # @param graph [Puppet::Graph::RelationshipGraph] in which whits stand for the beginning and the end of containers
      def initialize(graph)
        @graph = graph
        @behind = {} # whit → references: all resources of a class share what it notifies
      end

      # @return [Array<String>] references, at most MOST; none for a resource that is not to be changed
      def of(resource)
        resource.noop? ? [] : behind(resource).first(MOST)
      end

      private

      def behind(vertex)
        @graph.adjacent(vertex, direction: :out, type: :edges).flat_map do |edge|
          target = edge.target
          next [] unless edge.callback && target.respond_to?(edge.callback)
          next [target.ref] unless target.is_a?(Puppet::Type::Whit)

          @behind[target] ||= behind(target)
        end.uniq
      end
    end
  end
end
