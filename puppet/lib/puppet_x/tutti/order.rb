# frozen_string_literal: true

require 'json'
require_relative 'errors'

module PuppetX
  module Tutti
    # An Order is the agent's order: the checked content of run.json.
    class Order
      PROTOCOL = 1
      MODES = %w[apply noop compile].freeze
      PROGRAMS = %w[apply agent].freeze
      TEXTS = %w[run node mode environment environmentpath socket].freeze
      # OWN_CODE are fields that an order for `puppet agent` does not need. The code is on the Puppet Server, and the
      # environment may be chosen there.
      OWN_CODE = %w[environment environmentpath].freeze
      SECONDS = { 'lock_timeout' => 3600, 'gate_timeout' => 600 }.freeze
      LISTS = %w[modulepath tags skip_tags volatile_facts owed].freeze
      # DIRECTORIES are the fields for a Puppet that does not use its default directories.
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
        @data = SECONDS.merge('program' => 'apply', 'modulepath' => [], 'tags' => [], 'skip_tags' => [], 'volatile_facts' => [], 'owed' => []).merge(data)
        check(path)
      end

      def noop?
        mode == 'noop'
      end

      # Returns whether the catalog comes from the Puppet Server.
      def agent?
        @data['program'] == 'agent'
      end

      def debug?
        @data['debug'] == true
      end

      # Returns whether the run asks for the classes and parameters of the server's ENC.
      def enc?
        @data['enc'] == true
      end

      # Returns whether the run only compiles, so that somebody can compare its catalog.
      def diff?
        @data['diff'] == true && mode == 'compile'
      end

      # Returns the directory of the environment.
      def code
        File.join(environmentpath, environment)
      end

      # @return [Hash] the directories that the order sets
      def directories
        @data.slice(*DIRECTORIES).compact
      end

      # Returns the path of a file that replaces Puppet's agent_disabled_lockfile while the run's job has
      # disabled every other Puppet. The path is nil if no job has disabled Puppet.
      def disabled_lockfile
        @data['disabled_lockfile']
      end

      # Returns the node's own key for digests of secrets. The key is nil if the agent gives no key.
      def digest_key
        @data['digest_key']
      end

      private

      def check(path)
        texts = agent? ? TEXTS - OWN_CODE : TEXTS
        wrong = texts.reject { |name| @data[name].is_a?(String) && !@data[name].empty? } +
                SECONDS.keys.reject { |name| @data[name].is_a?(Integer) && @data[name].positive? } +
                LISTS.reject { |name| @data[name].is_a?(Array) && @data[name].all?(String) }
        raise Refused, "#{path}: missing or wrong: #{wrong.join(', ')}" unless wrong.empty?

        one_of(path, 'mode', MODES)
        one_of(path, 'program', PROGRAMS)
      end

      def one_of(path, name, known)
        return if known.include?(@data[name])

        raise Refused, "#{path}: unknown #{name} #{@data[name].inspect}, expected one of #{known.join(', ')}"
      end
    end
  end
end
