# frozen_string_literal: true

require 'facter'

module PuppetX
  module Tutti
    # This module saves work that Facter repeats each time that a module requests a single fact. The most expensive
    # requests are for facts that do not exist. Facter never remembers that a fact does not exist, and some providers
    # request a missing fact for each line of a file. Everything that can change during a run is still read each
    # time. Only results that depend on their arguments alone are remembered.
    module FactSearch
      def self.install
        Facter::QueryParser.singleton_class.prepend(Names)
        Facter::ConfigReader.singleton_class.prepend(Configuration)
      end

      # Reports whether a fact's name matches the question. Facter uses two regular expressions for each possible
      # fact.
      module Names
        def found_fact?(name, question)
          names = (@tutti_names ||= {})[question] ||= {}
          names.fetch(name) { names[name] = super }
        end
      end

      # Reads facter.conf each time, and parses the file again only if it has changed. Facter complains about an
      # invalid file, so an invalid file is always parsed. A file whose meaning may depend on other files or variables
      # is also always parsed.
      module Configuration
        ELSEWHERE = /include|\$/n.freeze

        def refresh_config(path)
          text = FactSearch.text(path)
          return self.conf = Marshal.load(@tutti_conf) if text && @tutti_read == [path, text] # rubocop:disable Security/MarshalLoad # written below

          super
          return if text.nil? || conf.empty? || text.match?(ELSEWHERE) || text != FactSearch.text(path)

          @tutti_conf = Marshal.dump(conf)
          @tutti_read = [path, text]
        end
      end

      # @return [String, nil] the bytes of a file; nil if the file cannot be read
      def self.text(path)
        File.binread(path)
      rescue SystemCallError
        nil
      end
    end
  end
end
