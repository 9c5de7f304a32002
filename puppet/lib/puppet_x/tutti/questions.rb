# frozen_string_literal: true

require 'puppet'
require_relative 'run'

module PuppetX
  module Tutti
    # These hooks tell a compile which code asks a question. The hooked places are the same in Puppet 7.23, 8 and
    # OpenVox.
    module Questions
      def self.install
        Puppet::Pops::Lookup::LookupAdapter.prepend(LookupAdapter)
        Puppet::Parser::Compiler.prepend(Compiler)
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

      # If PuppetDB's function is missing, the error names the functions of Tutti. The module does not define a function
      # with that name, because it would hide the real function.
      module Compiler
        INSTEAD = 'there is no PuppetDB here; use tutti::exports(TYPE, FILTER) for resources that other nodes export, and ' \
                  'tutti::value(KEY) for what they publish with tutti_value'

        def compile(*)
          super
        rescue Puppet::ParseErrorWithIssue => e
          raise unless e.issue_code == :UNKNOWN_FUNCTION && e.arguments.to_h[:name] == 'puppetdb_query'

          raise e.class.new("#{e.basic_message}: #{INSTEAD}", e.file, e.line, e.pos, e, e.issue_code, e.arguments)
        end
      end

      # Remembers the place of a collector in the code.
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
