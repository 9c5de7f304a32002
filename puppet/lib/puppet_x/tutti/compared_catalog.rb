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
            'edges' => edges(catalog), 'sources' => sources(resources, leaves, content), 'lib' => content.lib }
        end

        private

        def resource(resource, key)
          clear, sensitive = Exports.parameters(resource)
          unshown = clear.select { |name, data| secret?(resource, name, data) }
          hidden = unshown.transform_values { |data| digest(data, key) }
          sensitive.each { |name| hidden[name] = digest(RichData.encode(resource[name.to_sym]), key) }
          tags = resource.tags.to_a.map { |tag| Redaction.known?(tag.to_s) ? Redaction::REPLACEMENT : tag.to_s }
          { 'exported' => resource.exported ? true : false, 'tags' => tags.sort,
            'parameters' => clear.reject { |name, _| hidden.key?(name) }.transform_values { |data| text(data) }, 'hidden' => hidden }
        end

        def edges(catalog)
          catalog.edges.reject { |edge| edge.source.virtual || edge.target.virtual }
                 .map { |edge| Redaction.of("#{edge.source.ref} -> #{edge.target.ref}") }.sort
        end

        def sources(resources, leaves, content)
          content.named(leaves.sources, leaves.texts) unless resources.any? { |resource| later?(resource[:source]) }
        end

        # Returns whether only the node knows a value. A source may then be any file.
        def later?(value)
          value.is_a?(Puppet::Pops::Types::TypeFactory.deferred.implementation_class) || (value.is_a?(Array) && value.any? { |item| later?(item) })
        end

        # Returns whether a value may be a secret although it is not Sensitive.
        def secret?(resource, name, data)
          Redaction::NAMES.match?(name) || names_secret?(data) || opened?(data) ||
            (name == 'content' && resource.type == 'File' && resource[:show_diff].to_s == 'false')
        end

        def names_secret?(data)
          case data
          when Hash then data.any? { |name, item| Redaction::NAMES.match?(name.to_s) || names_secret?(item) }
          when Array then data.any? { |item| names_secret?(item) }
          else false
          end
        end

        # Returns whether a value contains the text of a secret that this run has opened. Nobody searches a Binary, which
        # has another form here.
        def opened?(data)
          case data
          when Hash then data['__ptype'] == 'Binary' || data.any? { |name, item| opened?(name) || opened?(item) }
          when Array then data.any? { |item| opened?(item) }
          when String, Numeric then Redaction.known?(data.to_s)
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
