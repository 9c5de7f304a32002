# frozen_string_literal: true

require 'digest'
require 'openssl'
require_relative 'canonical'
require_relative 'exports'
require_relative 'rich_data'

module PuppetX
  module Tutti
    # This module computes the digest of the effects of a catalog. The digest leaves out file, line, version,
    # uuids, code id and times. Resources, parameter names and tags are sorted. The keys of a hash keep their
    # order, because the result of a type or a template may depend on it.
    module CatalogDigest
      # @param key [String, nil] the key for the digests that replace secrets; without a key secrets are left out
      def self.of(catalog, key: nil)
        resources = catalog.resources.reject(&:virtual).map { |resource| resource(resource, key) }
        edges = catalog.edges.reject { |edge| edge.source.virtual || edge.target.virtual }
                       .map { |edge| [edge.source.ref, edge.target.ref] }.sort
        data = { 'name' => catalog.name, 'environment' => catalog.environment.to_s,
                 'resources' => resources.sort_by { |entry| [entry['type'], entry['title']] }, 'edges' => edges }
        "sha256:#{Digest::SHA256.hexdigest(Canonical.exact(data))}"
      end

      def self.resource(resource, key)
        clear, sensitive = Exports.parameters(resource)
        entry = { 'type' => resource.type, 'title' => resource.title.to_s, 'exported' => resource.exported ? true : false,
                  'tags' => resource.tags.to_a.map(&:to_s).sort, 'parameters' => clear, 'sensitive' => sensitive }
        return entry unless key

        entry['secrets'] = sensitive.map { |name| secret(resource[name.to_sym], key) }
        entry
      end
      private_class_method :resource

      def self.secret(value, key)
        OpenSSL::HMAC.hexdigest('SHA256', key, Canonical.exact(RichData.encode(value)))
      end
      private_class_method :secret
    end
  end
end
