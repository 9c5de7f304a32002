# frozen_string_literal: true

require 'fileutils'
require 'json'
require 'socket'

# FakeAgent is the agent's side of the run protocol, in memory. The fake agent answers from `answers` and records
# every request. `on` changes the behaviour of one operation. The block of `on` gets the request and the hello of
# its connection, and returns the response.
class FakeAgent
  attr_reader :path, :requests, :store

  def initialize(path, node:, run:, mode: 'apply')
    @path = path
    @node = node
    @run = run
    @mode = mode
    @requests = []
    @store = {}
    @handlers = {}
    @values = {}
    @hiera = {}
    @exports = []
    @sealed = {}
    @awaited = {}
    @connections = []
  end

  # @!attribute sealed [Hash] secrets, by key; a hiera key begins with `hiera/`
  # @!attribute holds [Boolean, nil] whether the server holds catalogs for queries
  # @!attribute awaited [Hash] the keys of secrets that are not sealed to the node yet, by the key that lacks an
  #   answer
  attr_accessor :local, :mode, :values, :hiera, :exports, :sealed, :awaited, :holds

  def on(operation, &block)
    @handlers[operation] = block
    self
  end

  # Returns the recorded requests of one operation, in order.
  def asked(operation)
    requests.select { |request| request['op'] == operation }
  end

  def start
    @server = UNIXServer.new(path)
    @acceptor = Thread.new { loop { serve(@server.accept) } }
    @acceptor.report_on_exception = false
    self
  end

  def stop
    @acceptor&.kill&.join
    @connections.each do |thread, socket|
      thread.kill.join
      socket.close
    end
    @connections.clear
    @server&.close
    @server = nil
    FileUtils.rm_f(path)
  end

  private

  def serve(socket)
    thread = Thread.new do
      hello = nil
      while (line = socket.gets)
        request = JSON.parse(line, max_nesting: 0)
        hello = request if request['op'] == 'hello'
        @requests << request
        response = respond(request, hello)
        break if response == :hang_up

        socket.write("#{JSON.generate(response, max_nesting: 0)}\n")
      end
    rescue IOError, SystemCallError
      nil
    ensure
      socket.close
    end
    @connections << [thread, socket]
  end

  def respond(request, hello)
    handler = @handlers[request['op']]
    return handler.call(request, hello) if handler

    send("answer_#{request['op']}", request)
  end

  def answer_hello(request)
    return refused("run #{request['run']} is not here") unless request['run'] == @run
    return refused("certname #{request['certname']} is not #{@node}") unless request['certname'] == @node

    { ok: true, mode: @mode }
  end

  def answer_hiera(_request)
    hiera = ->(keys) { keys.select { |key, _| key.start_with?('hiera/') }.transform_keys { |key| key.delete_prefix('hiera/') } }
    secrets = hiera.call(@sealed)
    { ok: true, data: @hiera.merge(secrets), sensitive: secrets.keys, awaits: hiera.call(@awaited), degraded: false }
  end

  def answer_value(request)
    key = request['key']
    return { ok: true, found: false, awaits: @awaited[key], degraded: false } if @awaited.key?(key)
    return { ok: true, found: true, value: @sealed[key], sensitive: true, degraded: false } if @sealed.key?(key)

    { ok: true, found: @values.key?(key), value: @values[key], degraded: false }
  end

  def answer_collect(request)
    { ok: true, exports: @exports.select { |export| export['type'] == request['type'] }, degraded: false }
  end

  def answer_gate(_request)
    { ok: true, verdict: 'go', holds: @holds }
  end

  def answer_asked(_request)
    { ok: true }
  end

  def answer_published(request)
    return { ok: true, found: false, local: true } if @local

    found = @store.key?(request['key'])
    return { ok: true, found: found, outdated: @store[request['key']] != request.slice('value', 'for') } if request['sensitive']

    { ok: true, found: found, value: @store[request['key']] }
  end

  def answer_publish(request)
    @store[request['key']] = request['sensitive'] ? request.slice('value', 'for') : request['value']
    { ok: true }
  end

  def answer_withdraw(request)
    @store.delete(request['key'])
    { ok: true }
  end

  def answer_lock_wait(_request)
    { ok: true, released: false }
  end

  def refused(error)
    { ok: false, code: 'refused', error: error }
  end
end
