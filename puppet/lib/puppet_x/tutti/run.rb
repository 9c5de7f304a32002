# frozen_string_literal: true

require 'puppet'
require_relative 'errors'
require_relative 'acting_facts'
require_relative 'catalog_digest'
require_relative 'collectors'
require_relative 'content'
require_relative 'exports'
require_relative 'values'
require_relative 'facts_digest'
require_relative 'filter'
require_relative 'key_recorder'
require_relative 'leaves'
require_relative 'outside'
require_relative 'redaction'
require_relative 'waits'

module PuppetX
  module Tutti
    # A Run is the run of this process, as functions, termini and providers see the run. A run exists only in a
    # process that the launcher started, and during a compile on a Puppet Server (Compile). In all other cases
    # `Run.current` is nil, and the module reads nothing and publishes nothing.
    class Run
      # An Answer is the agent's answer about a key.
      # @!attribute awaits [String, nil] the key of a secret that is for this node but is not sealed to this node yet
      Answer = Struct.new(:found, :value, :awaits)

      # Puppet 8 resolves a Deferred when it applies the resource, and forgets that the value is Sensitive.
      LAZY = 'this version of Puppet shows the result of a Deferred, so the result must not be a secret; read the secret in the manifest'

      # The agent enforces the deadline of a lock. The run waits a little longer than the deadline, in case the agent
      # hangs.
      GRACE = 30

      class << self
        attr_writer :current

        # On a Puppet Server the result is the present compile. The result is nil for a node that Tutti does not know.
        def current
          @current || Puppet.lookup(:tutti_compile) { outside }
        end

        # `present` is like `current`, but on a Puppet Server it returns nil outside of a compile. Hooks use
        # this method, because every call passes through them.
        def present
          @current || Puppet.lookup(:tutti_compile) { nil }
        end

        # Returns whether Puppet resolves a Deferred while it applies the catalog.
        def lazy?
          Puppet.settings.include?(:preprocess_deferred) && !Puppet[:preprocess_deferred]
        end

        # Warns once per process that this process does not use Tutti.
        def warn_bare
          return if @warned

          @warned = true
          Puppet.warning('tutti: this Puppet was not started by Tutti: shared values are not read, nothing is published')
        end

        # Warns once per process that nothing is published, because the server is away.
        def warn_local
          return if @warned

          @warned = true
          Puppet.warning('tutti: a local run publishes nothing: the next run that the server orders does')
        end

        private

        # If a Puppet Server compiled without Tutti, every value would look absent. Applications such as
        # `puppet lookup` also have the server's run mode, but do not load the server's code.
        def outside
          return nil unless defined?(::Puppet::Server::Master)

          raise Puppet::Error, 'tutti: this Puppet Server compiles past Tutti: set storeconfigs = true and storeconfigs_backend = tutti in ' \
                               'the section [server] of puppet.conf'
        end
      end

      attr_reader :order, :keys, :collectors, :waits
      # @!attribute outside [Hash] the digests that count as facts, see Outside
      attr_accessor :facts, :outside

      # @param order [Order]
      # @param client [#call]
      def initialize(order, client)
        @order = order
        @client = client
        @keys = KeyRecorder.new(self)
        @collectors = Collectors.new
        @waits = Waits.new(self)
        @handed = nil
        @outside = {}
        @answers = {}
      end

      # Returns the node whose catalog Puppet compiles.
      def node
        order.node
      end

      # Returns all hiera data of this node. The run requests the data once. Secrets are Sensitive.
      def hiera
        @hiera ||= level(ask('hiera'))
      end

      # @return [String, nil] the key of a secret that is for this node but is not sealed to it yet, so that the level
      #   lacks this hiera key
      def awaited(key)
        hiera
        @awaited[key]
      end

      # @return [String, nil] why the agent could not open the secret of a key
      def closed(key)
        hiera
        @closed[key]
      end

      # Returns whether Tutti's level is known to have a key. Before the agent has answered, the result is false.
      def hiera?(key)
        @hiera ? @hiera.key?(key) : false
      end

      # @return [Answer] the shared value of a key; the value stays the same during the run
      def value(key, at)
        @answers[['value', key]] ||= answer(ask('value', { 'key' => key, 'at' => at }), 'value').tap do |answer|
          raise Puppet::Error, "tutti: the value of #{key.inspect} is a secret: #{Run::LAZY}" if secret?(answer.value) && @applies && Run.lazy?
        end
      end

      # @return [Array<String>] the groups of the node as the server decides them; the list stays the same during the run
      def groups(at)
        @groups ||= part(ask('groups', { 'at' => at }), 'groups', 'groups', Array).each do |group|
          raise Puppet::Error, "tutti: groups: the agent's answer has a #{group.class} in place of a group (internal)" unless group.is_a?(String)
        end
      end

      # Gives a node the classes and parameters that the site's ENC says about it, as Puppet does it with its own ENC:
      # parameters are variables at top scope, and come before facts of the same name.
      def classify(node)
        response = ask('enc')
        unless part(response, 'enc', 'found', true, false)
          raise Unanswered.new('the ENC has not answered about this node', { 'query' => { 'kind' => 'enc' }, 'at' => nil })
        end

        answer = part(response, 'enc', 'answer', Hash)
        node.parameters.merge!(answer.fetch('parameters', {}))
        node.classes = answer.fetch('classes', {})
      end

      # @return [Array<Hash>] the exports of other nodes that match
      def collect(type, filter, at)
        @answers[['collect', type, filter]] ||=
          exports(ask('collect', { 'type' => type, 'filter' => filter, 'at' => at }), type)
          .reject { |export| export['node'] == node }
      end

      # Reports what the compile has read and would publish, and waits for the verdict.
      # @return [Array] the verdict, its reason, and whether the server holds catalogs for queries; without a verdict,
      #   the code and the message of the failure
      def gate(catalog)
        @applies = true
        @client.call('gate', {
                       'catalog' => description(catalog), 'exports' => order.agent? ? [] : Exports.of(catalog),
                       'values' => Values.of(catalog), **asked
                     }, timeout: order.gate_timeout).values_at('verdict', 'reason', 'holds')
      rescue NoAnswer => e
        [e.code, e.message]
      end

      # Reports the lookups that the run has not reported at its gate. Such lookups come from a failed compile, or
      # from values that Puppet resolves while it applies the catalog.
      def hand_over
        @client.call('asked', asked) unless facts.nil? || @handed == keys.keys
      rescue NoAnswer => e
        Puppet.warning("tutti: #{e.message} (#{e.code})")
      end

      # Waits until a lock may be free.
      # @return [Boolean] false when the time for waiting is over
      def lock_wait(path, pid, command)
        ask('lock_wait', { 'path' => path, 'pid' => pid, 'command' => command },
            timeout: order.lock_timeout + GRACE)['released'] == true
      end

      # @param wanted [Hash] the value that the resource publishes, or the wish to withdraw the value; in a local run
      #   the agent compares `wanted` with the published value, and tells the server about a difference
      # @return [Answer, nil] the value that this node published last under a key, which does not count as a read; nil in a
      #   local run, because a local run publishes nothing
      def published(key, wanted)
        response = ask('published', { 'key' => key, **wanted })
        answer(response, 'published') unless response['local'] == true
      end

      def publish(key, value)
        ask('publish', { 'key' => key, 'value' => value })
      end

      # @param targets [Array<String>] the targets of the secret: group:NAME, node:NAME
      # @return [Symbol, nil] :present, :outdated or :absent; nil in a local run, which publishes nothing
      def published_secret(key, value, targets)
        response = ask('published', { 'key' => key, 'value' => value, 'sensitive' => true, 'for' => targets })
        return nil if response['local'] == true
        return :absent unless part(response, 'published', 'found', true, false)

        response['outdated'] == true ? :outdated : :present
      end

      def publish_secret(key, value, targets)
        ask('publish', { 'key' => key, 'value' => value, 'sensitive' => true, 'for' => targets })
      end

      def withdraw(key)
        ask('withdraw', { 'key' => key })
      end

      private

      def asked
        @handed = keys.keys
        { 'keys' => @handed, 'facts_digest' => FactsDigest.of(facts.merge(outside), order.volatile_facts) }
      end

      # Describes a catalog without showing it.
      def description(catalog)
        digest = { 'digest' => CatalogDigest.of(catalog, key: order.digest_key), 'resources' => catalog.resources.size }
        return digest if order.agent? # the content of the named files is on the Puppet Server

        leaves = Leaves.new(catalog)
        content = Content.new(Puppet.lookup(:current_environment))
        { **digest,
          'sources' => content.sources(leaves.sources, leaves.texts), 'lib' => acting(content.lib, catalog), 'deferred' => leaves.deferred? }
      end

      # Returns a digest of two things: the modules' code, and the facts that types and providers read while Puppet
      # applies the catalog.
      def acting(lib, catalog)
        read = ActingFacts.new(Puppet.lookup(:current_environment).modulepath, catalog).among(FactsDigest.stable(facts.merge(outside), order.volatile_facts))
        read.empty? || lib.nil? ? lib : Canonical.digest([lib, read])
      rescue SystemCallError
        nil
      end

      def ask(operation, fields = {}, **options)
        @client.call(operation, fields, **options)
      rescue NoAnswer => e
        raise Puppet::Error, "tutti: #{e.message} (#{e.code})"
      end

      # A missing answer differs from an empty answer. If a part is missing or has another type, the run ends with an
      # error that names the part.
      def part(response, operation, name, *types)
        value = response[name]
        return value if types.any? { |type| type === value } # rubocop:disable Style/CaseEquality

        raise Puppet::Error, "tutti: #{operation}: the agent's answer has no #{name} as it should be, " \
                             "but #{response.key?(name) ? "a #{value.class}" : 'nothing'} (internal)"
      end

      def answer(response, operation)
        found = part(response, operation, 'found', true, false)
        part(response, operation, 'value', String, Numeric, true, false, Array, Hash) if found
        value = response['value'] if found
        Answer.new(found, response['sensitive'] == true ? sensitive(value) : value, response['awaits'])
      end

      def secret?(value)
        value.is_a?(Puppet::Pops::Types::PSensitiveType::Sensitive)
      end

      def level(response)
        @awaited = response.fetch('awaits', {})
        @closed = response.fetch('closed', {})
        data = part(response, 'hiera', 'data', Hash)
        response.fetch('sensitive', []).each { |key| data[key] = sensitive(data.fetch(key)) }
        data
      end

      def sensitive(value)
        Redaction.note(value)
        Puppet::Pops::Types::PSensitiveType::Sensitive.new(value)
      end

      # Returns the exports of an answer. Each export must be a resource of the requested type and name its node.
      def exports(response, type)
        part(response, 'collect', 'exports', Array).each do |export|
          whole = export.is_a?(Hash) && export['type'].to_s.casecmp?(type) && export['title'].to_s != '' && export['node'].is_a?(String) &&
                  (export['parameters'].nil? || export['parameters'].is_a?(Hash))
          raise Puppet::Error, "tutti: collect: the agent's answer has an export of #{type} that is none (internal)" unless whole
        end
      end
    end
  end
end
