# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # This module writes Puppet's log messages as JSON lines.
    module Log
      LOCATION = /\(file: (?<file>[^,()]+?)(?:, line: (?<line>\d+))?(?:, column: (?<pos>\d+))?\)/.freeze

      # Writes everything that Puppet logs in this process to this journal, too.
      def self.to(journal)
        Puppet::Util::Log.newdesttype(:tutti) do
          define_singleton_method(:match?) { |object| object == :tutti }
          define_method(:handle) { |message| journal.write(Log.fields(message)) }
        end
        Puppet::Util::Log.newdestination(:tutti)
      end

      # Some errors contain their place only in the text.
      def self.fields(message)
        text = message.message.to_s
        fields = { 'level' => message.level.to_s, 'message' => text, 'source' => message.source.to_s }
        found = {}
        %w[file line pos issue_code].each do |name|
          value = message.instance_variable_get("@#{name}")
          found[name] = value unless value.nil?
        end
        location = LOCATION.match(text)
        if location && !found.key?('file')
          found = { 'file' => location[:file], 'line' => location[:line]&.to_i, 'pos' => location[:pos]&.to_i }.compact.merge(found)
        end
        fields.merge(found)
      end
    end
  end
end
