# frozen_string_literal: true

module PuppetX
  module Tutti
    # What the facts of this process cost, as Facter measures them itself (`facter --timing`). Facts are resolved in threads of their own.
    module FactCosts
      LIMIT = 0.2 # seconds; what costs less is nobody's concern
      KEY = :tutti_fact_costs

      # Prepended to Facter's timer.
      module Timer
        def measure(name, *)
          FactCosts.measure(name.to_s) { super }
        end
      end

      @measured = Queue.new

      class << self
        # From now on each fact is measured. A Facter that has no timer is not.
        def watch
          require 'facter'
          Facter::Framework::Benchmarking::Timer.singleton_class.prepend(Timer)
        rescue LoadError, NameError
          nil
        end

        # Without what other facts took that it asked for.
        def measure(name)
          outer = Thread.current[KEY]
          Thread.current[KEY] = 0.0
          began = now
          yield
        ensure
          took = now - began
          @measured << [name, took - Thread.current[KEY]]
          Thread.current[KEY] = outer && (outer + took)
        end

        # What costs much, by the name that it has in facter.conf, and where that file is.
        # @return [Hash] slow: seconds by name; conf: path, if there are any
        def record
          slow = Array.new(@measured.size) { @measured.pop }.select { |_, seconds| seconds > LIMIT }
          return { 'slow' => {} } if slow.empty?

          groups = Facter::FactGroups.new.groups
          worst = Hash.new(0.0)
          slow.each do |fact, seconds|
            name = name(groups, fact)
            worst[name] = [worst[name], seconds.round(3)].max # facts of a group wait for the same, at once
          end
          { 'slow' => worst, 'conf' => Facter::Options[:config] || Facter::ConfigReader.send(:default_path) }
        rescue NameError
          { 'slow' => {} } # another Facter
        end

        private

        # The group that is cached as a whole, or the fact, or the file of an external one.
        def name(groups, fact)
          group, = groups.find { |_, facts| Array(facts).any? { |of| fact == of || fact.start_with?("#{of}.") } }
          group || fact
        end

        def now
          Process.clock_gettime(Process::CLOCK_MONOTONIC)
        end
      end
    end
  end
end
