# frozen_string_literal: true

module PuppetX
  # This module is the Ruby side of Tutti. The Ruby side needs only Puppet and Ruby's standard
  # library.
  module Tutti
    # The node cannot carry out the order. Nothing was compiled or applied.
    class Refused < StandardError; end

    # The agent did not answer a question, or refused to answer it. `code` is one of the codes of
    # the protocol: refused, unavailable, invalid, deadline, internal.
    class NoAnswer < StandardError
      attr_reader :code

      def initialize(code, message)
        super(message)
        @code = code
      end
    end
  end
end
