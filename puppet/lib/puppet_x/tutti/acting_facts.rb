# frozen_string_literal: true

require 'puppet'
require_relative 'canonical'

module PuppetX
  module Tutti
    # This class finds the facts that types and providers may read while Puppet applies a catalog. The catalog does not
    # show these facts. The class reads the code of each module that has a type of the catalog, or a provider of such a
    # type. If code does not name the fact that it reads, the class returns all facts.
    class ActingFacts
      # Tutti's own module reads facts, but these facts do not change what its types do.
      OWN = 'tutti'
      # Code in these directories runs only during a compile or during the collection of facts.
      ELSEWHERE = %r{\A(?:facter|puppet/(?:application|datatypes|face|functions|indirector|parser|reports))/}.freeze
      NAMED = /(?:Facter|\[:facter\])\s*(?:\.\s*(?:value|fact)\s*\(?|\[)\s*[:'"](\w+)/.freeze
      SUITABLE = /\A\s*(?:confine|defaultfor|notdefaultfor)\b(.*)/.freeze
      # These conditions of `confine` are not facts.
      CONDITIONS = %w[any exists false feature for_binary true].freeze
      # Puppet 8 does not collect these facts, and their values come from the fact `os`.
      OF_OS = /\A(?:architecture|hardwaremodel|lsb\w+|operatingsystem\w*|osfamily)\z/.freeze

      # @param modulepath [Array<String>]
      # @param catalog [Puppet::Resource::Catalog]
      def initialize(modulepath, catalog)
        types = catalog.resources.map(&:resource_type).grep(Class).to_h { |type| [type.name.to_s, true] }
        @names = modulepath.flat_map { |dir| modules(dir) }.select { |lib| plays?(lib, types) }.flat_map { |lib| named_in(lib) }.uniq
      end

      # @param facts [Hash] all facts
      # @return [Hash] the facts that the code may read
      def among(facts)
        names = @names.map { |name| name.to_s.match?(OF_OS) ? 'os' : name }
        return facts if names.any? { |name| name == :all || !facts.key?(name) }

        facts.slice(*names)
      end

      private

      def modules(dir)
        children(dir).reject { |name| name == OWN }.map { |name| File.join(dir, name, 'lib') }
      end

      def plays?(lib, types)
        [*children(File.join(lib, 'puppet/type')).map { |file| file.delete_suffix('.rb') },
         *children(File.join(lib, 'puppet/provider'))].any? { |name| types.key?(name) }
      end

      def children(dir)
        Dir.children(dir).sort
      rescue Errno::ENOENT, Errno::ENOTDIR
        []
      end

      def named_in(lib)
        Dir.glob('**/*.rb', base: lib).sort.reject { |file| file.match?(ELSEWHERE) }.flat_map do |file|
          File.foreach(File.join(lib, file), encoding: 'BINARY').flat_map { |line| named(line.sub(/(?:\A|\s)#.*/m, '')) }
        end
      end

      # @return [Array<String, Symbol>] the facts that a line of code may read; :all for any of them
      def named(line)
        if (suits = line[SUITABLE, 1])
          conditions = suits.scan(/['"]?(\w+)['"]?\s*(?:=>|:(?!:))/).flatten
          return conditions.empty? ? [:all] : conditions - CONDITIONS
        end
        return [] if !line.match?(/facter/i) || line.match?(/\A\s*require/)

        found = line.scan(NAMED).flatten
        found.size < line.scan(/facter/i).size ? [:all] : found
      end
    end
  end
end
