# frozen_string_literal: true

require 'facter'

module PuppetX
  module Tutti
    # Spares Facter what it does again for every single fact that a module asks for itself, and most of all for one that does not exist, which
    # it never remembers: providers ask for such a fact for each line of a file. All that can change while a run goes on is looked at as ever;
    # what is remembered follows from its arguments alone.
    module FactSearch
      def self.install
        Facter::QueryParser.singleton_class.prepend(Names)
        Facter::ConfigReader.singleton_class.prepend(Configuration)
      end

      # Whether the name of a fact is what was asked for: two regular expressions for each fact that there may be.
      module Names
        def found_fact?(name, question)
          names = (@tutti_names ||= {})[question] ||= {}
          names.fetch(name) { names[name] = super }
        end
      end

      # facter.conf, read each time, and parsed again if it is another one. One that is wrong, which Facter complains of, is always parsed, and so
      # is one that may mean something else by what is around it.
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

      # @return [String, nil] the bytes of a file; nil: it cannot be read
      def self.text(path)
        File.binread(path)
      rescue SystemCallError
        nil
      end
    end
  end
end
