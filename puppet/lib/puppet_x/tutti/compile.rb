# frozen_string_literal: true

require 'digest'
require_relative 'puppetdb'
require_relative 'run'

module PuppetX
  module Tutti
    # A compile on a Puppet Server, for a node of Tutti: the questions are the same, the answers are the node's, and what was read
    # and exported is handed over before the node gets its catalog. It belongs to one compile and to one thread.
    class Compile < Run
      # What a question was answered that PuppetDB could not answer as Tutti would: no answer has it, so that the run is stopped at
      # its gate and compiles again.
      LAGS = "sha256:#{Digest::SHA256.hexdigest('PuppetDB has not stored it yet')}"

      attr_reader :node

      # @param node [String] the certname of the catalog request
      # @param client [#call] says hello for that node
      # @param recorded [Boolean] whether it is a run of Tutti's, which wants to know what is read
      def initialize(node, client, recorded:)
        super(nil, client)
        @node = node
        @recorded = recorded
        @reads = []
      end

      def hiera
        @hiera ||= begin
          response = ask('hiera')
          @digests = part(response, 'hiera', 'digests', Hash)
          @seq = part(response, 'hiera', 'seq', Integer)
          part(response, 'hiera', 'data', Hash)
        end
      end

      # Notes that PuppetDB has answered a collector.
      def answered_by_puppetdb(type, filter, found)
        return if PuppetDB.stored?(collect(type, filter, {}), found)

        @reads.each { |read| read['digest'] = LAGS if read['query'].values_at('kind', 'type', 'filter') == ['collect', type, filter] }
      end

      # Hands over what was read and exports; without that the node gets no catalog.
      def hand_over(catalog)
        hand({ 'exports' => Exports.of(catalog), 'waits' => waits.noted })
      end

      # There is no catalog. What was read is told all the same: an answer may be why.
      def not_compiled(error)
        hand({ 'exports' => [], 'waits' => waits.ending(error), 'failed' => true })
      rescue Puppet::Error => e
        Puppet.warning(e.message)
      end

      private

      def hand(fields)
        return unless @recorded

        found = keys.keys
        ask('compiled', fields.merge('reads' => @reads + hiera_reads(found), 'keys' => found))
      end

      def hiera_reads(found)
        found.select { |key| key['found'] }.map do |key|
          read('hiera', { 'key' => key['key'] }, true, @digests[key['key']], @seq)
        end
      end

      def ask(operation, fields = {}, **options)
        response = super
        case operation
        when 'value' then note('value', fields.slice('key'), response, response['found'])
        when 'collect' then note('collect', fields.slice('type', 'filter').compact, response, true)
        end
        response
      end

      def note(kind, question, response, found)
        digest = part(response, kind, 'digest', String)
        @reads << read(kind, question, found, digest, part(response, kind, 'seq', Integer))
      end

      def read(kind, question, found, digest, seq)
        { 'query' => { 'kind' => kind }.merge(question), 'found' => found, 'digest' => digest, 'seq' => seq }
      end
    end
  end
end
