# frozen_string_literal: true

require 'puppet'
require_relative 'run'

module PuppetX
  module Tutti
    # Where a compile is told who asks. The places are the same in Puppet 7.23, 8 and OpenVox.
    module Questions
      def self.install
        Puppet::Pops::Lookup::LookupAdapter.prepend(LookupAdapter)
        Puppet::Pops::Evaluator::CollectorTransformer.prepend(CollectorTransformer)
        Puppet::Pops::Evaluator::Collectors::ExportedCollector.prepend(ExportedCollector)
      end

      # Tells the key recorder in which class a key is looked up.
      module LookupAdapter
        def lookup(key, lookup_invocation, merge)
          run = Run.present
          return super if run.nil?

          run.keys.within(lookup_invocation.scope) { super }
        end
      end

      # Remembers where a collector is written.
      module CollectorTransformer
        def transform(expression, scope)
          collector = super
          Run.present&.collectors&.made(collector, expression.file, expression.line)
          collector
        end
      end

      # Tells the terminus which collector asks.
      module ExportedCollector
        def collect
          run = Run.present
          return super if run.nil?

          run.collectors.within(self) { super }
        end
      end
    end
  end
end
