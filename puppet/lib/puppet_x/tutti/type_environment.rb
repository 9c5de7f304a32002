# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # While Puppet loads a type, the type may change the environment variables of the process. This module records
    # these changes. All commands of a run see the changes (for example, `package` sets how apt asks questions). A
    # run that does not use the type must not have these changes.
    module TypeEnvironment
      @changes = {}

      class << self
        # Runs the block, which loads types, records the changed environment variables, and then
        # undoes the changes.
        def note
          before = ENV.to_h
          types = names
          yield
          changes = ENV.to_h.reject { |name, value| before[name] == value }
          (names - types).each { |type| @changes[type] = changes } unless changes.empty?
          ENV.replace(before)
        end

        # In a child: prepares the changes for the moment when Puppet asks for a type.
        def await
          Puppet::Type.extend(Lookup) unless @changes.empty?
        end

        # In a child: Puppet will load the type again, and the type itself will make the changes.
        def forget(type)
          @changes.delete(type)
        end

        # In a child: Puppet asks for the type, so this method makes the changes.
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

      # This hook runs where Puppet loads a missing type.
      module Lookup
        def type(name)
          TypeEnvironment.used(name.to_s.downcase.to_sym)
          super
        end
      end
    end
  end
end
