# frozen_string_literal: true

require_relative 'position'

module PuppetX
  module Tutti
    # This class records where in the code the collectors of a compile are written. Puppet
    # evaluates collectors later, when its stack is empty.
    class Collectors
      def initialize
        @positions = {}.compare_by_identity
        @current = nil
      end

      # Records that Puppet created a collector from the expression at this place.
      def made(collector, file, line)
        @positions[collector] = { 'file' => file, 'line' => line }.compact
      end

      # Questions inside the block belong to this collector.
      def within(collector)
        outer = @current
        @current = collector
        yield
      ensure
        @current = outer
      end

      # Returns whether a collector asks the present question.
      def asking?
        !@current.nil?
      end

      def position(scope)
        Position.of(scope).merge(@positions[@current] || {})
      end
    end
  end
end
