# frozen_string_literal: true

require 'puppet'
require_relative 'position'

module PuppetX
  module Tutti
    # Declares a resource in the catalog for something that was left out.
    module LeftOut
      TYPE = 'Tutti_waiting'

      # There is one resource for each question and container. So each class with a left-out block contains a resource
      # that fails, and Puppet does not apply resources that require the class. This also holds if blocks of two
      # classes wait for the same answer.
      # @param title [String] the name of the missing answer
      # @param question [String] for people
      def self.declare(scope, title, question)
        container = scope.resource
        titles = [title, "#{title} in #{container.ref}"]
        there = titles.map { |name| scope.catalog.resource(TYPE, name) }
        return if there.compact.any? { |resource| resource.scope.resource.equal?(container) }

        file, line = Position.of(scope).values_at('file', 'line')
        parameter = Puppet::Parser::Resource::Param.new(name: :question, value: question, source: scope.source, file: file, line: line)
        resource = Puppet::Parser::Resource.new(TYPE, titles[there.index(nil)],
                                                scope: scope, source: scope.source, parameters: [parameter], file: file, line: line)
        scope.compiler.add_resource(scope, resource)
      end
    end
  end
end
