# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # What loading a type does to the process's environment, which all commands of a run have (`package`: how apt asks). A run that does
    # not use the type does not have it.
    module TypeEnvironment
      @changes = {}

      class << self
        # Loads types; what that sets is not set afterwards.
        def note
          before = ENV.to_h
          types = names
          yield
          changes = ENV.to_h.reject { |name, value| before[name] == value }
          (names - types).each { |type| @changes[type] = changes } unless changes.empty?
          ENV.replace(before)
        end

        # In a child: sets it when a type is asked for.
        def await
          Puppet::Type.extend(Lookup) unless @changes.empty?
        end

        # In a child: the type will be loaded again, and do so itself.
        def forget(type)
          @changes.delete(type)
        end

        # In a child: the type is asked for.
        def used(type)
          changes = @changes.delete(type)
          ENV.update(changes) if changes
        end

        private

        def names
          found = []
          Puppet::Type.eachtype { |type| found << type.name }
          found
        end
      end

      # Where a type is loaded if it is not.
      module Lookup
        def type(name)
          TypeEnvironment.used(name.to_s.downcase.to_sym)
          super
        end
      end
    end
  end
end
