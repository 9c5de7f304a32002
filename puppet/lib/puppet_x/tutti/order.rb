# frozen_string_literal: true

require 'json'
require_relative 'errors'

module PuppetX
  module Tutti
    # What the agent ordered: the content of run.json, checked.
    class Order
      PROTOCOL = 1
      MODES = %w[apply noop compile].freeze
      TEXTS = %w[run node mode environment environmentpath socket].freeze
      SECONDS = { 'lock_timeout' => 3600, 'gate_timeout' => 600 }.freeze
      LISTS = %w[modulepath tags skip_tags].freeze
      # Directories of a Puppet that does not use its defaults.
      DIRECTORIES = %w[confdir vardir].freeze

      (TEXTS + SECONDS.keys + LISTS).each do |name|
        define_method(name) { @data[name] }
      end

      # @param dir [String] the run's directory
      # @return [Order]
      # @raise [Refused] when run.json is missing, unreadable or asks for another protocol
      def self.read(dir)
        path = File.join(dir, 'run.json')
        new(JSON.parse(File.read(path)), path)
      rescue SystemCallError, JSON::ParserError => e
        raise Refused, "cannot read the order #{path}: #{e.message}"
      end

      def initialize(data, path = 'run.json')
        raise Refused, "#{path} is not an object" unless data.is_a?(Hash)

        unless data['protocol'] == PROTOCOL
          raise Refused, "#{path} asks for protocol #{data['protocol'].inspect}, this module speaks #{PROTOCOL}: " \
                         'agent and module must be of one version'
        end
        @data = SECONDS.merge('modulepath' => [], 'tags' => [], 'skip_tags' => []).merge(data)
        check(path)
      end

      def noop?
        mode == 'noop'
      end

      def debug?
        @data['debug'] == true
      end

      # The directory of the environment.
      def code
        File.join(environmentpath, environment)
      end

      # @return [Hash] the directories that the order sets
      def directories
        @data.slice(*DIRECTORIES).compact
      end

      # The node-local key that digests of secrets are made with; nil when the agent gives none.
      def digest_key
        @data['digest_key']
      end

      private

      def check(path)
        wrong = TEXTS.reject { |name| @data[name].is_a?(String) && !@data[name].empty? } +
                SECONDS.keys.reject { |name| @data[name].is_a?(Integer) && @data[name].positive? } +
                LISTS.reject { |name| @data[name].is_a?(Array) && @data[name].all?(String) }
        raise Refused, "#{path}: missing or wrong: #{wrong.join(', ')}" unless wrong.empty?
        return if MODES.include?(mode)

        raise Refused, "#{path}: unknown mode #{mode.inspect}, expected one of #{MODES.join(', ')}"
      end
    end
  end
end
