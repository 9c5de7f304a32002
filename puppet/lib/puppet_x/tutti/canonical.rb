# frozen_string_literal: true

require 'digest'
require 'json'

module PuppetX
  module Tutti
    # This module writes data in only one form, with sorted keys at every level, so that equal data has equal
    # digests.
    module Canonical
      def self.json(data)
        exact(sort(data))
      end

      # Returns JSON of any data, with the keys of hashes in their own order. Two strings that differ in one
      # byte have different JSON.
      def self.exact(data)
        JSON.generate(data)
      rescue JSON::GeneratorError, EncodingError
        JSON.generate(bytes(data))
      end

      def self.digest(data)
        "sha256:#{Digest::SHA256.hexdigest(json(data))}"
      end

      def self.bytes(data)
        case data
        when String then text(data) || { 'bytes' => [data].pack('m0') }
        when Array then data.map { |item| bytes(item) }
        when Hash then data.map { |name, item| [bytes(name.to_s), bytes(item)] }
        else data
        end
      end
      private_class_method :bytes

      # @return [String, nil] nil if the bytes are not UTF-8
      def self.text(string)
        utf8 = string.dup.force_encoding(Encoding::UTF_8)
        utf8 if utf8.valid_encoding?
      end
      private_class_method :text

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
