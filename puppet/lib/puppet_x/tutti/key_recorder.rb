# frozen_string_literal: true

require 'puppet'
require_relative 'position'

module PuppetX
  module Tutti
    # Puppet tells its key recorder every hiera key that it looks up, whoever answers.
    # The recorder does not learn the scope, which says in which class: `within` does.
    class KeyRecorder < Puppet::Pops::Lookup::KeyRecorder
      def initialize(run)
        super()
        @run = run
        @asked = {}
        @scope = nil
      end

      # Whoever else wants to know of each key, nil: nobody.
      attr_writer :outer

      # The lookups inside the block are made in this scope.
      def within(scope)
        outer = @scope
        @scope = scope
        yield
      ensure
        @scope = outer
      end

      # Called by Puppet; keeps the first asker.
      def record(key)
        @asked[Puppet::Pops::Lookup::LookupKey.new(key).root_key] ||= Position.of(@scope)
        @outer&.record(key)
      end

      # @return [Array<Hash>] the keys of this compile, sorted and unique
      def keys
        @asked.sort.map do |key, at|
          { 'key' => key, 'found' => @run.hiera?(key), 'at' => at }
        end
      end

      # Whether this run asked for a key that Tutti's level does not have.
      def unanswered?(key)
        @asked.key?(key) && !@run.hiera?(key)
      end

      # Where a key was first asked for.
      def position(key)
        @asked[key]
      end
    end
  end
end
