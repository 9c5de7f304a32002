# frozen_string_literal: true

require_relative 'canonical'

module PuppetX
  module Tutti
    # The digest of a node's facts without those that change at each collection and would keep the node stale for ever.
    module FactsDigest
      # Whole facts. The list is part of the module's documentation (README).
      VOLATILE = %w[
        system_uptime load_averages memory mountpoints disks
        uptime uptime_seconds uptime_hours uptime_days timestamp
        memoryfree memoryfree_mb memorysize memorysize_mb swapfree swapfree_mb swapsize swapsize_mb
      ].freeze
      # Parts of structured facts.
      VOLATILE_PARTS = { 'processors' => %w[speed] }.freeze

      def self.of(facts)
        Canonical.digest(stable(facts))
      end

      def self.stable(facts)
        facts.reject { |name, _| VOLATILE.include?(name.to_s) }.to_h do |name, value|
          parts = VOLATILE_PARTS[name.to_s]
          value = value.reject { |part, _| parts.include?(part.to_s) } if parts && value.is_a?(Hash)
          [name.to_s, value]
        end
      end
    end
  end
end
