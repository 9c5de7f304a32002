# frozen_string_literal: true

require_relative 'exports'
require_relative 'journal'
require_relative 'redaction'

module PuppetX
  module Tutti
    # This module writes the catalog of a run in the form in which the server holds it for queries (ADR 0036). A
    # parameter that may be a secret is named in the list `hidden`, and its value is left out.
    module HeldCatalog
      # The file in the run's directory. The agent sends the file to the server.
      FILE = 'catalog-held.json'
      # These parameters hold the text of files, as in the types File and Concat::Fragment. Such a text may contain
      # secrets, and nobody searches for it.
      TEXTS = %w[content].freeze

      class << self
        # @param dir [String] the run's directory
        # @param code [String, nil] the directory of the environment; places inside it are written without it
        def write(dir, catalog, code)
          Journal.replace(File.join(dir, FILE), of(catalog, code))
        end

        # @return [Hash] data for JSON
        def of(catalog, code)
          resources = catalog.resources.select { |resource| resource.exported || !resource.virtual }.map { |resource| resource(resource, code) }
          { 'resources' => resources.sort_by { |entry| [entry['type'], entry['title']] } }
        end

        private

        def resource(resource, code)
          clear, hidden = parameters(resource)
          { 'type' => resource.type.to_s, 'title' => title(resource.title.to_s), 'exported' => (true if resource.exported),
            'tags' => resource.tags.to_a.map(&:to_s).reject { |tag| Redaction.known?(tag) }.sort, 'file' => place(resource.file, code),
            'line' => resource.line, 'parameters' => clear.sort.to_h, 'hidden' => (hidden.sort unless hidden.empty?) }.compact
        end

        def title(text)
          clear = Redaction.of(text)
          Redaction.known?(clear) ? Redaction::REPLACEMENT : clear
        end

        # @return [Array(Hash, Array<String>)] the clear parameters, and the names of the hidden ones
        def parameters(resource)
          secret = resource.sensitive_parameters.map(&:to_s) + TEXTS
          all = resource.to_hash.reject { |_, value| value.nil? || value == :undef }.transform_keys(&:to_s)
          clear = all.reject { |name, _| secret.include?(name) || Redaction::NAMES.match?(name) }.transform_values { |value| plain(value) }
          clear.reject! { |_, value| hides?(value) }
          [clear, all.keys - clear.keys]
        end

        # Returns whether a plain value contains a secret, or something that is not plain, at any depth.
        def hides?(value)
          case value
          when Hash then value.any? { |key, item| Redaction::NAMES.match?(key) || hides?(key) || hides?(item) }
          when Array then value.any? { |item| hides?(item) }
          when String then Redaction.known?(value)
          when Numeric then Redaction.known?(value.to_s)
          when true, false, nil then false
          else true
          end
        end

        # Returns a value in plain JSON. References to resources are written as in Puppet's messages: File[/x]. All other
        # objects, such as a Sensitive or a Deferred, stay as they are, and `hides?` finds them.
        def plain(value)
          case value
          when Puppet::Resource, Puppet::Pops::Types::PResourceType, Puppet::Pops::Types::PClassType, Symbol then text(value)
          when Float then value.finite? ? value : value.to_s
          when Array then value.map { |item| plain(item) }
          when Hash then value.to_h { |key, item| [key.is_a?(Numeric) ? key.to_s : plain(key), plain(item)] }
          else value
          end
        end

        def text(value)
          value == :undef ? nil : value.to_s
        end

        def place(file, code)
          return file if file.nil? || code.nil?

          [code, File.realpath(code)].map { |dir| "#{dir}/" }.each { |dir| return file.delete_prefix(dir) if file.start_with?(dir) }
          file
        rescue SystemCallError
          file
        end
      end
    end
  end
end
