# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # A question that nobody has answered, and without whose answer the compile cannot go on.
    class Unanswered < Puppet::Error
      attr_reader :wait

      # @param wait [Hash] see Waits.wait
      def initialize(message, wait)
        super(message)
        @wait = wait
      end
    end

    # The questions that a run waits for.
    class Waits
      PLACE = /(?:\s\((?:file|line): [^\n]*\))?(?: on node \S+)?/.freeze
      WHERE = /(?:Evaluation Error: Error while evaluating an? [\w ]+, )?/.freeze
      # Puppet's words where a lookup has found nothing anywhere, and where a class lacks nothing but parameters.
      LOOKUP = /\A#{WHERE}Function lookup\(\) did not find a value for (?:the name|any of the names \[)(?<names>[^\]]*)\]?#{PLACE}\z/.freeze
      PARAMETERS = /\A#{WHERE}Class\[(?<class>[\w:]+)\]:(?<list>(?:\s+expects a value for parameter '\w+')+)#{PLACE}\z/.freeze

      # A question and where it was asked, as the protocol has it.
      def self.wait(kind, name, position)
        { 'query' => { 'kind' => kind, (kind == 'collect' ? 'type' : 'key') => name }, 'at' => position }
      end

      # What to say of a secret that is for the node and not sealed to it.
      def self.secret(key)
        "the secret #{key.inspect} is for this node and not sealed to it yet: an operator does it with `tutti secret reseal`"
      end

      # @param run [Run]
      def initialize(run)
        @run = run
        @noted = []
      end

      # Something was left out of the catalog until this question has an answer.
      def note(wait)
        @noted << wait unless @noted.any? { |other| other['query'] == wait['query'] }
      end

      # @return [Array<Hash>] what a compiled catalog waits for
      def noted
        @noted.dup
      end

      # @param error [Exception] what ended the compile
      # @return [Array<Hash>] what it waited for; empty if questions are not why it ended
      def ending(error)
        final = self.class.cause(error)&.wait
        waits = final ? [final] : unanswered_keys(error.message)
        waits.empty? ? [] : @noted + (waits - @noted)
      end

      # The unanswered question that an error goes back to. What somebody rescued is no cause: an error that was raised
      # in its stead does not say it any more.
      # @return [Unanswered, nil]
      def self.cause(error)
        inner = error
        inner = inner.cause until inner.nil? || inner.is_a?(Unanswered)
        inner if inner && error.message.include?(inner.message)
      end

      private

      # The hiera keys that an error names, if this run asked for all of them and nobody had them.
      def unanswered_keys(message)
        keys = named(message)
        return [] unless keys.all? { |key| @run.keys.unanswered?(key) }

        keys.map { |key| Waits.wait('hiera', key, @run.keys.position(key)) }
      rescue Puppet::DataBinding::LookupError
        [] # what the error names is no key
      end

      def named(message)
        if (found = LOOKUP.match(message))
          found[:names].scan(/'([^']+)'/).map { |(name)| Puppet::Pops::Lookup::LookupKey.new(name).root_key.to_s }
        elsif (found = PARAMETERS.match(message))
          found[:list].scan(/'(\w+)'/).map { |(name)| "#{found[:class].downcase}::#{name}" }
        else
          []
        end
      end
    end
  end
end
