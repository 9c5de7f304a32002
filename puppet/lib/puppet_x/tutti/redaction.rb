# frozen_string_literal: true

require 'puppet'
require 'puppet/transaction/event'
require 'puppet/util/log'

module PuppetX
  module Tutti
    # Removes opened secrets from Puppet's messages. If a type refuses a value, the message of the type
    # contains the value, even if the value is Sensitive.
    module Redaction
      # Shorter secrets may be ordinary words, which would then be removed from every message.
      LEAST = 6
      REPLACEMENT = '[redacted]'
      # Matches the names of parameters whose values are often secrets in clear text.
      NAMES = /
        pass(?!enger|ive|thr) | pwd | pw\z | (\A|_)pw(_|\z) | secret | token | credential | (\A|_)creds?(_|\z) | psk | preshared | cookie | salt |
        (\A|_)pin(_|\z) | (private|api|auth|access|encryption|shared|signing|session|master|host|ssl|tls)_?key
      /ix.freeze

      class << self
        # @param value [Object] the clear value of a secret
        def note(value)
          case value
          when String then texts << value if value.length >= LEAST
          when Numeric then note(value.to_s)
          when Array then value.each { |item| note(item) }
          when Hash then value.each_value { |item| note(item) }
          end
        end

        # @return [Object] the message without secrets; an object that is not a string is unchanged
        def of(said)
          return said if @texts.nil? || !said.is_a?(String)

          texts.sort_by { |text| -text.length }.reduce(said) do |left, text|
            forms(text).reduce(left) { |all, form| all.include?(form) ? all.gsub(form, REPLACEMENT) : all }
          end
        rescue ArgumentError, EncodingError
          REPLACEMENT # a message that cannot be searched is not shown
        end

        # @return [Boolean] whether a text contains a secret, in upper or lower case
        def known?(said)
          return false if @texts.nil?

          folded = said.downcase
          texts.any? { |text| forms(text).any? { |form| folded.include?(form.downcase) } }
        rescue ArgumentError, EncodingError
          true # a text that cannot be searched is not shown
        end

        # Forgets all secrets, because a run must not know the secrets of an earlier run.
        def forget
          @texts = nil
        end

        def install
          Puppet::Util::Log.prepend(Said)
          Puppet::Transaction::Event.prepend(Said)
        end

        private

        def texts
          @texts ||= Set.new
        end

        # Returns the text itself, and the text as Ruby quotes it.
        def forms(text)
          [text, text.inspect[1..-2], text.strip].uniq.select { |form| form.length >= LEAST }
        end
      end

      # This hook is for all classes that have a message.
      module Said
        def message=(message)
          super(Redaction.of(message))
        end
      end
    end
  end
end
