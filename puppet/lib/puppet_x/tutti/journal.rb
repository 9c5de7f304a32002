# frozen_string_literal: true

require 'json'

module PuppetX
  module Tutti
    # A Journal is an append-only file of JSON lines. Each line is one write, so a killed process
    # leaves only whole lines. `write` never raises an error, because a full disk must not end a
    # Puppet run in the middle.
    class Journal
      # Returns the time as RFC 3339 with milliseconds, like in all files of a run.
      def self.now
        Time.now.utc.strftime('%Y-%m-%dT%H:%M:%S.%LZ')
      end

      # Returns JSON of any text of Puppet, including strings that are not valid UTF-8.
      def self.json(data)
        JSON.generate(data)
      rescue JSON::GeneratorError, EncodingError
        JSON.generate(scrub(data))
      end

      def self.scrub(data)
        case data
        when String then data.dup.force_encoding(Encoding::UTF_8).scrub
        when Array then data.map { |item| scrub(item) }
        when Hash then data.to_h { |key, item| [scrub(key.to_s), scrub(item)] }
        else data
        end
      end

      # Replaces a whole file. The new content is on disk when this method returns.
      def self.replace(path, data)
        temporary = "#{path}.new"
        File.open(temporary, 'w', 0o600) do |file|
          file.write(json(data))
          file.fsync
        end
        File.rename(temporary, path)
        File.open(File.dirname(path), &:fsync)
      end

      def initialize(path)
        @file = File.open(path, 'a', 0o600)
        @file.sync = true
      end

      # Appends one line, without the fields that are nil.
      def write(fields)
        append(fields)
      rescue SystemCallError, IOError
        nil
      end

      # Appends one line. The line and all earlier lines are on disk when `note` returns.
      # @raise [SystemCallError, IOError]
      def note(fields)
        append(fields)
        @file.fdatasync
      end

      private

      # If a full disk has cut off a line, the next line must still be readable.
      def append(fields)
        line = "#{Journal.json({ 't' => Journal.now }.merge(fields.compact))}\n"
        @file.write(@torn ? "\n#{line}" : line)
        @torn = false
      rescue SystemCallError, IOError
        @torn = true
        raise
      end
    end
  end
end
