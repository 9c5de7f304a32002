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
      # Matches the names of parameters whose values are often secrets in clear text.
      SECRET = /passw|passphrase|secret|token|credential|private_?key|api_?key|auth_?key/i.freeze
      # Parameters that hold the text of a file. Such a text may contain secrets, and nobody searches for it.
      TEXTS = { 'File' => %w[content] }.freeze

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
          type = resource.type.to_s
          secret = resource.sensitive_parameters.map(&:to_s) + TEXTS.fetch(type, [])
          clear, hidden = parameters(resource, secret)
          { 'type' => type, 'title' => Redaction.of(resource.title.to_s), 'exported' => (true if resource.exported),
            'tags' => resource.tags.to_a.map(&:to_s).sort, 'file' => place(resource.file, code), 'line' => resource.line,
            'parameters' => clear.sort.to_h, 'hidden' => (hidden.sort unless hidden.empty?) }.compact
        end

        # @return [Array(Hash, Array<String>)] the clear parameters, and the names of the hidden ones
        def parameters(resource, secret)
          all = resource.to_hash.reject { |_, value| value.nil? || value == :undef }.transform_keys(&:to_s)
          hidden, clear = all.partition { |name, value| secret.include?(name) || SECRET.match?(name) || hides?(value) }.map(&:to_h)
          [clear.transform_values { |value| plain(value) }, hidden.keys]
        end

        # Returns whether a value may contain a secret at any depth. A Deferred may return anything.
        def hides?(value)
          case value
          when Puppet::Pops::Types::PSensitiveType::Sensitive, deferred then true
          when Hash then value.any? { |key, item| SECRET.match?(key.to_s) || hides?(key) || hides?(item) }
          when Array then value.any? { |item| hides?(item) }
          when String then !Redaction.of(value).equal?(value)
          else false
          end
        end

        def deferred
          Puppet::Pops::Types::TypeFactory.deferred.implementation_class
        end

        # Returns a value in plain JSON. References to resources are written as in Puppet's messages: File[/x].
        def plain(value)
          case value
          when String, Integer, true, false, nil then value
          when Float then value.finite? ? value : value.to_s
          when Array then value.map { |item| plain(item) }
          when Hash then value.to_h { |key, item| [key.to_s, plain(item)] }
          else value.to_s
          end
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
