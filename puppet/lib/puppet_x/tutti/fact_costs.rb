# frozen_string_literal: true

module PuppetX
  module Tutti
    # This module measures the time that the facts of this process cost, in the way in which Facter itself measures
    # it (`facter --timing`). Facter resolves facts in separate threads.
    module FactCosts
      LIMIT = 0.2 # seconds; faster facts are not reported
      KEY = :tutti_fact_costs

      # This hook measures each fact that Facter's timer measures.
      module Timer
        def measure(name, *)
          FactCosts.measure(name.to_s) { super }
        end
      end

      @measured = Queue.new

      class << self
        # After this call each fact is measured. A Facter without a timer is not measured.
        def watch
          require 'facter'
          Facter::Framework::Benchmarking::Timer.singleton_class.prepend(Timer)
        rescue LoadError, NameError
          nil
        end

        # Measures the time of a fact, without the time of other facts for which this fact asked.
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

        # Returns the slow facts by their names in facter.conf, and the path of that file.
        # @return [Hash] slow: seconds by name; conf: path, if there are any
        def record
          slow = Array.new(@measured.size) { @measured.pop }.select { |_, seconds| seconds > LIMIT }
          return { 'slow' => {} } if slow.empty?

          groups = Facter::FactGroups.new.groups
          worst = Hash.new(0.0)
          slow.each do |fact, seconds|
            name = name(groups, fact)
            worst[name] = [worst[name], seconds.round(3)].max # the facts of a group wait at the same time, so the times are not added
          end
          { 'slow' => worst, 'conf' => Facter::Options[:config] || Facter::ConfigReader.send(:default_path) }
        rescue NameError
          { 'slow' => {} } # this Facter has no groups
        end

        private

        # Returns the name of the fact's group if Facter caches the group as a whole. If Facter does not, returns the
        # name of the fact, or of the file of an external fact.
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
