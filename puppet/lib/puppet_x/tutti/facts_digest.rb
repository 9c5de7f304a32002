# frozen_string_literal: true

require 'json'
require_relative 'canonical'

module PuppetX
  module Tutti
    # This module computes the digest of a node's facts. The digest leaves out facts that change at each
    # collection, because these facts would keep the node suspect for ever. The digest also leaves out facts
    # that belong to the run and not to the node.
    module FactsDigest
      # These facts are left out as a whole. The list of volatile facts is part of the module's documentation
      # (README).
      VOLATILE = %w[
        system_uptime load_averages memory mountpoints disks
        uptime uptime_seconds uptime_hours uptime_days timestamp
        memoryfree memoryfree_mb memorysize memorysize_mb swapfree swapfree_mb swapsize swapsize_mb
        clientnoop
      ].freeze
      # These parts of structured facts are left out.
      VOLATILE_PARTS = { 'processors' => %w[speed] }.freeze

      # @param volatile [Array<String>] names of further facts that are left out
      def self.of(facts, volatile = [])
        Canonical.digest(stable(facts, volatile))
      end

      # @param before [Hash] the earlier facts, with the types of JSON
      # @return [Array<String>] the names of the facts that differ now, sorted
      def self.changed(before, now, volatile = [])
        before, now = [before, now].map { |facts| stable(JSON.parse(JSON.generate(facts)), volatile) }
        (before.keys | now.keys).reject { |name| before.key?(name) && now.key?(name) && before[name] == now[name] }.sort
      end

      def self.stable(facts, volatile = [])
        passing = VOLATILE + volatile
        facts.reject { |name, _| passing.include?(name.to_s) }.to_h do |name, value|
          parts = VOLATILE_PARTS[name.to_s]
          value = value.reject { |part, _| parts.include?(part.to_s) } if parts && value.is_a?(Hash)
          [name.to_s, value]
        end
      end
    end
  end
end
