# frozen_string_literal: true

module PuppetX
  # The Ruby side of Tutti; nothing here needs more than Puppet and Ruby's own library.
  module Tutti
    # The order cannot be carried out on this node as it is: nothing was compiled, nothing was applied.
    class Refused < StandardError; end

    # The agent did not answer a question, or answered that it will not.
    # `code` is one of the protocol's codes: refused, unavailable, invalid, deadline, internal.
    class NoAnswer < StandardError
      attr_reader :code

      def initialize(code, message)
        super(message)
        @code = code
      end
    end
  end
end
