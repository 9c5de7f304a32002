# frozen_string_literal: true

require_relative 'canonical'
require_relative 'rich_data'

module PuppetX
  module Tutti
    # This module writes the normal form of a collector's filter. This form has prefix lists and tags in lower case,
    # and the two sides of `and` and `or` are sorted. The same question always has the same data, regardless of who
    # asks it and how it is written.
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

      # Returns the filter in the form in which a collector gives it. This method reverses the
      # method `normal`.
      # @param prefix [Array] `['=', NAME, VALUE]`, `['and', …]`
      # @return [Array]
      def self.infix(prefix)
        operator, *operands = prefix
        case operator
        when '=', '!=' then test(prefix, operator, *operands)
        when 'and', 'or'
          raise malformed(prefix, 'operands are needed') if operands.empty?

          operands.map { |operand| infix(operand) }.reduce { |left, right| [left, operator, right] }
        else raise malformed(prefix, "a list like ['=', NAME, VALUE] is needed, or some of them in ['and', …] or ['or', …]")
        end
      end

      def self.test(prefix, operator, *operands)
        name, value = operands
        raise malformed(prefix, 'a name and a value are needed') unless operands.length == 2 && name.is_a?(String) && !name.empty?
        raise malformed(prefix, "#{name} is compared with text") if %w[tag title].include?(name) && !value.is_a?(String)

        [name, OPERATORS.key(operator), value]
      end
      private_class_method :test

      def self.malformed(filter, what)
        ArgumentError.new("filter #{filter.inspect}: #{what}")
      end
      private_class_method :malformed

      def self.value(name, value)
        return value.to_s.downcase if name == 'tag'

        RichData.encode(value)
      end
      private_class_method :value
    end
  end
end
