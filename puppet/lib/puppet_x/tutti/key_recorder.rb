# frozen_string_literal: true

require 'puppet'
require_relative 'position'

module PuppetX
  module Tutti
    # Puppet calls its key recorder for every hiera key that Puppet looks up, regardless of the
    # level that answers. Puppet does not tell the recorder the scope of the lookup, which contains
    # the class. Therefore the method `within` sets the scope.
    class KeyRecorder < Puppet::Pops::Lookup::KeyRecorder
      def initialize(run)
        super()
        @run = run
        @asked = {}
        @scope = nil
      end

      # `outer` is another recorder that also gets each key, or nil.
      attr_writer :outer

      # Lookups inside the block belong to this scope.
      def within(scope)
        outer = @scope
        @scope = scope
        yield
      ensure
        @scope = outer
      end

      # Puppet calls this method. The recorder stores only the first place of each key.
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

      # Returns whether this run asked for this key and Tutti's level does not have the key.
      def unanswered?(key)
        @asked.key?(key) && !@run.hiera?(key)
      end

      # Returns the place where a key was first looked up.
      def position(key)
        @asked[key]
      end
    end
  end
end
