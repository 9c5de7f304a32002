# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # This error means that a question has no answer. The compile cannot continue without this
    # answer.
    class Unanswered < Puppet::Error
      attr_reader :wait

      # @param wait [Hash] see Waits.wait
      def initialize(message, wait)
        super(message)
        @wait = wait
      end
    end

    # Waits are the questions for which a run waits.
    class Waits
      PLACE = /(?:\s\((?:file|line): [^\n]*\))?(?: on node \S+)?/.freeze
      WHERE = /(?:Evaluation Error: Error while evaluating an? [\w ]+, )?/.freeze
      # LOOKUP matches Puppet's message about a lookup that has found nothing. PARAMETERS matches the
      # message about a class that lacks parameters and has no other error.
      LOOKUP = /\A#{WHERE}Function lookup\(\) did not find a value for (?:the name|any of the names \[)(?<names>[^\]]*)\]?#{PLACE}\z/.freeze
      PARAMETERS = /\A#{WHERE}Class\[(?<class>[\w:]+)\]:(?<list>(?:\s+expects a value for parameter '\w+')+)#{PLACE}\z/.freeze

      # Returns a question and the place where it was asked, in the form of the protocol.
      def self.wait(kind, name, position)
        { 'query' => { 'kind' => kind, (kind == 'collect' ? 'type' : 'key') => name }, 'at' => position }
      end

      # Returns the message about a secret that is for the node but is not yet sealed to the node.
      def self.secret(key)
        "the secret #{key.inspect} is for this node and not sealed to it yet: an operator does it with `tutti secret reseal`"
      end

      # @param run [Run]
      def initialize(run)
        @run = run
        @noted = []
      end

      # Records that something is left out of the catalog until this question has an answer.
      def note(wait)
        @noted << wait unless @noted.any? { |other| other['query'] == wait['query'] }
      end

      # @return [Array<Hash>] the questions for which a compiled catalog waits
      def noted
        @noted.dup
      end

      # @param error [Exception] the error that ended the compile
      # @return [Array<Hash>] the questions for which the compile waited; empty if the compile ended for another
      #   reason
      def ending(error)
        final = self.class.cause(error)&.wait
        waits = final ? [final] : unanswered_keys(error.message)
        waits.empty? ? [] : @noted + (waits - @noted)
      end

      # Returns the unanswered question that caused an error. Code may have rescued the question's error and
      # raised another error. If the other error does not contain the question's message, the question is not
      # the cause.
      # @return [Unanswered, nil]
      def self.cause(error)
        inner = error
        inner = inner.cause until inner.nil? || inner.is_a?(Unanswered)
        inner if inner && error.message.include?(inner.message)
      end

      private

      # Returns the hiera keys that an error names, if this run asked for all of them and no level had them.
      def unanswered_keys(message)
        keys = named(message)
        return [] unless keys.all? { |key| @run.keys.unanswered?(key) }

        keys.map { |key| Waits.wait('hiera', key, @run.keys.position(key)) }
      rescue Puppet::DataBinding::LookupError
        [] # the error does not name a valid key
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
