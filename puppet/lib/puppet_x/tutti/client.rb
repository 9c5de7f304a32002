# frozen_string_literal: true

require 'io/wait'
require 'json'
require 'socket'
require_relative 'errors'

module PuppetX
  module Tutti
    # A Client is one connection to the agent over a unix socket, either the run's socket or the socket for compiles.
    # Each request gets its response in order. If the socket is gone because the agent restarts, the client
    # reconnects, says hello and repeats its request for RECONNECT seconds. Every request is safe to repeat.
    class Client
      RECONNECT = 30
      PAUSE = 0.1
      ANSWER = 120
      # NESTING is the largest depth of JSON. A value has at most 256 levels (the server's bound), and the message
      # adds some levels. With Ruby's own bound of 100, a node could not read an answer that contains a deeper
      # value.
      NESTING = 300

      # @param path [String] the socket
      # @param hello [Hash] the fields of the request `hello`, sent first on each connection
      def initialize(path, hello, reconnect: RECONNECT)
        @path = path
        @hello = hello
        @reconnect = reconnect
      end

      # Connects if there is no connection yet.
      # @return [Hash] the agent's response to `hello`
      def greeting
        persist('hello') { @greeting }
      end

      # @return [Hash] the response
      # @raise [NoAnswer] when the agent refuses, cannot answer, or cannot be reached
      def call(operation, fields = {}, timeout: ANSWER)
        persist(operation) { exchange(operation, fields, timeout) }
      end

      def close
        @socket&.close
      rescue IOError
        nil
      ensure
        @socket = nil
      end

      private

      def persist(operation)
        deadline = nil
        begin
          hello unless @socket
          yield
        rescue SystemCallError, IOError => e
          close
          deadline ||= monotonic + @reconnect
          raise NoAnswer.new('unavailable', "no agent answers #{operation} on #{@path}: #{e.message}") if monotonic >= deadline

          sleep PAUSE
          retry
        end
      end

      def hello
        @socket = UNIXSocket.new(@path)
        @greeting = exchange('hello', @hello, ANSWER)
      rescue NoAnswer
        close
        raise
      end

      def exchange(operation, fields, timeout)
        deadline = monotonic + timeout
        write_line(JSON.generate({ 'op' => operation }.merge(fields), max_nesting: NESTING), deadline) ||
          late("#{operation}: the agent does not take the request within #{timeout} s")
        response = parse(read_line(deadline) || late("#{operation}: no answer from the agent within #{timeout} s"), operation)
        return response if response['ok'] == true

        raise NoAnswer.new(response['code'] || 'internal', "#{operation}: #{response['error'] || 'no reason given'}")
      end

      # If the agent is stopped, nobody reads its socket, and a blocking write could wait for ever.
      # @return [Boolean] false when the deadline has passed before all was written
      def write_line(line, deadline)
        rest = "#{line}\n".b
        until rest.empty?
          count = @socket.write_nonblock(rest, exception: false)
          if count == :wait_writable
            left = deadline - monotonic
            return false unless left.positive? && IO.select(nil, [@socket], nil, left)
          else
            rest = rest.byteslice(count, rest.bytesize)
          end
        end
        true
      end

      # @return [String, nil] nil when the deadline has passed before the end of the line
      def read_line(deadline)
        line = +''
        until line.end_with?("\n")
          left = deadline - monotonic
          return nil unless left.positive? && @socket.wait_readable(left)

          line << @socket.readpartial(65_536)
        end
        line
      end

      # The answer may still come later. Closes the connection, so that the next request does not take this
      # answer for its own.
      def late(message)
        close
        raise NoAnswer.new('deadline', message)
      end

      def parse(line, operation)
        raise JSON::ParserError, 'not UTF-8' unless line.force_encoding(Encoding::UTF_8).valid_encoding?

        response = JSON.parse(line, max_nesting: NESTING)
        return response if response.is_a?(Hash)

        raise JSON::ParserError, 'not an object'
      rescue JSON::ParserError => e
        close
        raise NoAnswer.new('internal', "#{operation}: the agent's answer is not readable: #{e.message}")
      end

      def monotonic
        Process.clock_gettime(Process::CLOCK_MONOTONIC)
      end
    end
  end
end
