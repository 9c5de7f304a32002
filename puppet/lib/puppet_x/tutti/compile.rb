# frozen_string_literal: true

require_relative 'puppetdb'
require_relative 'run'

module PuppetX
  module Tutti
    # This class is a compile on a Puppet Server for a node of Tutti. The compile asks the same questions as a run and
    # gets the node's answers. The compile reports its reads and exports before the node gets its catalog. The object
    # belongs to one compile and one thread.
    class Compile < Run
      # SHOWN is the number of keys that a message names.
      SHOWN = 3

      attr_reader :node

      # @param node [String] the certname of the catalog request
      # @param client [#call] the connection whose hello names the node
      # @param recorded [Boolean] whether Tutti ordered the run, so that the compile must report its reads
      # @param puppetdb [Boolean] whether the catalog goes to PuppetDB, and PuppetDB answers the collectors
      def initialize(node, client, recorded:, puppetdb: false)
        super(nil, client)
        @node = node
        @recorded = recorded
        @puppetdb = puppetdb
        @reads = []
        @catalogs = {}
        @found = {}
        @lags = []
      end

      # Only the Hiera level calls this method.
      def hiera
        @level = true
        load_hiera
      end

      def awaited(key)
        load_hiera
        @awaited[key]
      end

      def closed(key)
        load_hiera
        @closed[key]
      end

      # If hiera.yaml does not name Tutti's level, other values replace the values of Tutti, and no record shows
      # this. If hiera.yaml names the level, Puppet calls the level at the first lookup, for `lookup_options`.
      # @raise [Puppet::Error] if the level was never asked, although Tutti has a key that was
      #   looked up
      def check_level
        return if @level || keys.keys.empty?

        load_hiera
        passed = keys.keys.select { |key| key['found'] }.map { |key| key['key'].inspect }
        return if passed.empty?

        more = " and #{passed.length - SHOWN} more" if passed.length > SHOWN
        raise Puppet::Error, "tutti: the Hiera level of Tutti is missing: #{Puppet[:hiera_config]} needs {name: Tutti, lookup_key: tutti::hiera} " \
                             "as its first level; without it this Puppet Server compiles past keys that Tutti has: #{passed.first(SHOWN).join(', ')}#{more}"
      end

      # Returns the answer of PuppetDB to a question. The block asks PuppetDB, and runs only once for each question.
      # The method first asks PuppetDB for its catalogs, then runs the block, and then asks Tutti. If PuppetDB stores
      # another catalog before the block has run, this catalog counts as not yet stored.
      def through_puppetdb(type, filter)
        return yield unless @recorded

        @found[[type, filter]] ||= begin
          catalogs = @catalogs[type] ||= PuppetDB.catalogs(type)
          found = yield
          response = ask('collect', { 'type' => type, 'filter' => filter, 'stored' => PuppetDB.stored(catalogs, found) })
          @lags |= part(response, 'collect', 'lags', Array)
          found
        end
      end

      # Reports the reads and the exports. Without this report the node gets no catalog. If the catalog goes to
      # PuppetDB, the method reports the catalog even for a run that Tutti did not order, because the catalog's
      # exports are the node's exports from now on.
      def hand_over(catalog)
        return unless @recorded || @puppetdb

        stored = @puppetdb ? { 'catalog_uuid' => catalog.catalog_uuid } : {}
        hand({ 'exports' => Exports.of(catalog), 'waits' => waits.noted, **stored })
      end

      # Reports the reads of a compile that failed, because an answer may be the reason for the failure.
      def not_compiled(error)
        hand({ 'exports' => [], 'waits' => waits.ending(error), 'failed' => true }) if @recorded
      rescue Puppet::Error => e
        Puppet.warning(e.message)
      end

      private

      def load_hiera
        return @hiera if @hiera

        response = ask('hiera')
        @digests = part(response, 'hiera', 'digests', Hash)
        @seq = part(response, 'hiera', 'seq', Integer)
        @hiera = level(response)
      end

      def hand(fields)
        found = keys.keys
        read = @recorded ? { 'reads' => @reads + hiera_reads(found), 'keys' => found, 'lags' => @lags } : {}
        ask('compiled', fields.merge(read))
      end

      def hiera_reads(found)
        found.select { |key| key['found'] }.map do |key|
          read('hiera', { 'key' => key['key'] }, true, @digests[key['key']], @seq, key['at'])
        end
      end

      def ask(operation, fields = {}, **options)
        response = super
        case operation
        when 'value' then note('value', fields.slice('key'), response, response['found'], fields['at'])
        when 'groups' then note('groups', {}, response, true, fields['at'])
        when 'collect' then note('collect', fields.slice('type', 'filter').compact, response, true, fields['at'])
        end
        response
      end

      def note(kind, question, response, found, at)
        digest = part(response, kind, 'digest', String)
        @reads << read(kind, question, found, digest, part(response, kind, 'seq', Integer), at)
      end

      def read(kind, question, found, digest, seq, at)
        { 'query' => { 'kind' => kind }.merge(question), 'found' => found, 'digest' => digest, 'seq' => seq, 'at' => at }
      end
    end
  end
end
