# frozen_string_literal: true

require 'openssl'
require_relative 'canonical'
require_relative 'exports'
require_relative 'journal'
require_relative 'leaves'
require_relative 'redaction'
require_relative 'rich_data'

module PuppetX
  module Tutti
    # This module writes the catalog of a compile for a diff in a form that the agent can compare with another catalog
    # of the same node (ADR 0038). A keyed digest replaces each value that is or may be a secret.
    module ComparedCatalog
      # The file in the run's directory.
      FILE = 'catalog-diff.json'
      # Matches the names of parameters whose values are often secrets in clear text.
      SECRET = /passw|passphrase|secret|token|credential|private_?key|api_?key|auth_?key/i.freeze

      class << self
        # @param order [Order]
        # @param content [Content]
        # @raise [Puppet::Error] if there is no key for the digests of secrets
        def write(dir, catalog, order, content)
          raise Puppet::Error, 'the order has no key for digests of secrets' if order.digest_key.nil?

          Journal.replace(File.join(dir, FILE), of(catalog, order.digest_key, content).merge('run' => order.run))
        end

        # @return [Hash] data for JSON
        def of(catalog, key, content)
          leaves = Leaves.new(catalog)
          resources = catalog.resources.select { |resource| resource.exported || !resource.virtual }
          { 'resources' => resources.to_h { |resource| [Redaction.of(resource.ref), resource(resource, key)] },
            'edges' => edges(catalog), 'sources' => content.named(leaves.sources, leaves.texts), 'lib' => content.lib }
        end

        private

        def resource(resource, key)
          clear, sensitive = Exports.parameters(resource)
          unshown = clear.select { |name, data| secret?(resource, name, data) }
          hidden = unshown.transform_values { |data| digest(data, key) }
          sensitive.each { |name| hidden[name] = digest(RichData.encode(resource[name.to_sym]), key) }
          { 'exported' => resource.exported ? true : false, 'tags' => resource.tags.to_a.map(&:to_s).sort,
            'parameters' => clear.reject { |name, _| hidden.key?(name) }.transform_values { |data| text(data) }, 'hidden' => hidden }
        end

        def edges(catalog)
          catalog.edges.reject { |edge| edge.source.virtual || edge.target.virtual }
                 .map { |edge| Redaction.of("#{edge.source.ref} -> #{edge.target.ref}") }.sort
        end

        # Returns whether a value may be a secret although it is not Sensitive.
        def secret?(resource, name, data)
          SECRET.match?(name) || names_secret?(data) || opened?(data) ||
            (name == 'content' && resource.type == 'File' && resource[:show_diff].to_s == 'false')
        end

        def names_secret?(data)
          case data
          when Hash then data.any? { |name, item| SECRET.match?(name.to_s) || names_secret?(item) }
          when Array then data.any? { |item| names_secret?(item) }
          else false
          end
        end

        # Returns whether a value contains the text of a secret that this run has opened.
        def opened?(data)
          case data
          when Hash then data.any? { |name, item| opened?(name) || opened?(item) }
          when Array then data.any? { |item| opened?(item) }
          when String then Redaction.of(data) != data
          else false
          end
        end

        def digest(data, key)
          OpenSSL::HMAC.hexdigest('SHA256', key, Canonical.exact(data))
        end

        # Returns data that JSON can represent. A string that is not UTF-8 becomes its digest.
        def text(data)
          JSON.generate(data)
          data
        rescue JSON::GeneratorError, EncodingError
          { 'bytes' => Digest::SHA256.hexdigest(Canonical.exact(data)) }
        end
      end
    end
  end
end
