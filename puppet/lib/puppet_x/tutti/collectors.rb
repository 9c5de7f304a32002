# frozen_string_literal: true

require_relative 'position'

module PuppetX
  module Tutti
    # Where the collectors of a compile are written. Puppet evaluates them later, when its stack is empty.
    class Collectors
      def initialize
        @positions = {}.compare_by_identity
        @current = nil
      end

      # A collector was made from the expression at this place.
      def made(collector, file, line)
        @positions[collector] = { 'file' => file, 'line' => line }.compact
      end

      # The questions inside the block are this collector's.
      def within(collector)
        outer = @current
        @current = collector
        yield
      ensure
        @current = outer
      end

      # Whether it is a collector that asks.
      def asking?
        !@current.nil?
      end

      def position(scope)
        Position.of(scope).merge(@positions[@current] || {})
      end
    end
  end
end
