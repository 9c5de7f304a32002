# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # Position finds the place in the manifests where a question is asked, if Puppet reports the
    # place.
    module Position
      def self.of(scope)
        file, line = Puppet::Pops::PuppetStack.top_of_stack
        resource = scope.resource if scope.respond_to?(:resource)
        { 'resource' => resource&.ref, 'file' => file, 'line' => line }.compact
      end
    end
  end
end
