# frozen_string_literal: true

require 'digest'
require 'json'
require_relative 'journal'

module PuppetX
  module Tutti
    # Data in one form only: keys sorted at every level, so that equal data has equal digests.
    module Canonical
      def self.json(data)
        Journal.json(sort(data))
      end

      def self.digest(data)
        "sha256:#{Digest::SHA256.hexdigest(json(data))}"
      end

      def self.sort(data)
        case data
        when Hash then data.map { |key, value| [key.to_s, sort(value)] }.sort_by(&:first).to_h
        when Array then data.map { |value| sort(value) }
        when Symbol then data.to_s
        else data
        end
      end
    end
  end
end
