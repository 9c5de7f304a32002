# frozen_string_literal: true

require_relative 'canonical'
require_relative 'rich_data'

module PuppetX
  module Tutti
    # A collector's filter in normal form: prefix lists, tags in lower case, the two sides of `and` and `or` sorted,
    # so that the same question is the same data whoever asks it and however it is written.
    module Filter
      OPERATORS = { '==' => '=', '!=' => '!=' }.freeze

      # @param infix [Array, nil] the filter as Puppet's collectors give it
      # @return [Array, nil]
      def self.normal(infix)
        return nil if infix.nil?

        left, operator, right = infix
        case operator
        when '==', '!=' then [OPERATORS[operator], left.to_s, value(left.to_s, right)]
        when 'and', 'or' then [operator, *[normal(left), normal(right)].sort_by { |side| Canonical.json(side) }]
        else raise ArgumentError, "unknown operator #{operator.inspect} in a collector's filter"
        end
      end

      def self.value(name, value)
        return value.to_s.downcase if name == 'tag'

        RichData.encode(value)
      end
      private_class_method :value
    end
  end
end
