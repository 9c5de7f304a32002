# frozen_string_literal: true

require_relative '../spec_helper'
require 'timeout'
require 'puppet_x/tutti/client'

RSpec.describe PuppetX::Tutti::Client do
  around { |example| Dir.mktmpdir { |dir| (@path = File.join(dir, 's')) && example.run } }

  let(:agent) { FakeAgent.new(@path, node: 'n', run: 'r') }
  let(:client) { described_class.new(@path, { 'run' => 'r', 'certname' => 'n' }, reconnect: 0.3) }

  after { agent.stop }

  it 'says hello first and once' do
    agent.start
    expect(client.greeting['mode']).to eq('apply')
    client.call('hiera')
    client.call('value', { 'key' => 'k' })
    expect(agent.requests.map { |request| request['op'] }).to eq(%w[hello hiera value])
  end

  [
    { reason: 'refuses', response: { ok: false, code: 'refused', error: 'no grant' }, code: 'refused', error: 'value: no grant' },
    { reason: 'gives no code', response: { ok: false }, code: 'internal', error: 'value: no reason given' },
    { reason: 'answers what is no object', response: [1], code: 'internal', error: "value: the agent's answer is not readable: not an object" }
  ].each do |row|
    it "has no answer when the agent #{row[:reason]}, and goes on" do
      agent.start.on('value') { row[:response] }
      expect { client.call('value') }.to raise_error(an_instance_of(PuppetX::Tutti::NoAnswer).and(having_attributes(code: row[:code], message: row[:error])))
      expect(client.call('hiera')['ok']).to be(true)
    end
  end

  it 'does not say hello again to an agent that refuses it' do
    agent.start.on('hello') { { ok: false, code: 'refused', error: 'another run' } }
    2.times { expect { client.call('value') }.to raise_error(PuppetX::Tutti::NoAnswer, 'hello: another run') }
    expect(agent.asked('hello').length).to eq(2)
  end

  it 'repeats a request on a new connection when the old one breaks' do
    times = 0
    agent.start.on('value') { (times += 1) < 3 ? :hang_up : { ok: true, found: true } }
    expect(client.call('value', { 'key' => 'k' })['found']).to be(true)
    expect(agent.requests.map { |request| request['op'] }).to eq(%w[hello value hello value hello value])
  end

  it 'gives up when the agent stays away' do
    expect { client.call('value') }.to raise_error(having_attributes(code: 'unavailable', message: /no agent answers value on .*No such file/))
  end

  it 'gives up at the deadline, and does not take the late answer for the next one' do
    release = Queue.new
    agent.start.on('value') { |request| request['key'] == 'slow' ? release.pop : { ok: true, value: 'fast' } }
    expect { client.call('value', { 'key' => 'slow' }, timeout: 0.1) }.to raise_error(having_attributes(code: 'deadline', message: /within 0.1 s/))
    release.push({ ok: true, value: 'slow' })
    expect(client.call('value', { 'key' => 'fast' })['value']).to eq('fast')
  end

  # The sockets of a stopped process stay open, and nobody reads them.
  it 'gives up at the deadline also where the agent is frozen and takes no request' do
    frozen = UNIXServer.new(@path)
    greeter = Thread.new { frozen.accept.tap { |socket| socket.gets && socket.write("{\"ok\":true}\n") } }
    client.greeting
    Timeout.timeout(10) do
      expect { client.call('compiled', { 'reads' => 'x' * 2_000_000 }, timeout: 0.2) }
        .to raise_error(having_attributes(code: 'deadline', message: 'compiled: the agent does not take the request within 0.2 s'))
    end
  ensure
    greeter&.value&.close
    frozen&.close
  end

  # Ruby 3 and JRuby do not wait for room in the queue.
  it 'gives up where the agent is frozen and its queue of connections is full' do
    frozen = UNIXServer.new(@path).tap { |server| server.listen(0) }
    waiting = UNIXSocket.new(@path)
    Timeout.timeout(10) do
      expect { client.greeting }.to raise_error(having_attributes(code: 'unavailable', message: /no agent answers hello on /))
    end
  ensure
    [frozen, waiting].compact.each(&:close)
  end

  it 'sends requests of any length' do
    agent.start
    client.call('publish', { 'key' => 'k', 'value' => 'é' * 1_000_000 }, timeout: 20)
    expect(agent.store).to eq('k' => 'é' * 1_000_000)
  end

  it 'takes answers of any length' do
    agent.start.on('hiera') { { ok: true, data: 'x' * 300_000 } }
    expect(client.call('hiera')['data'].length).to eq(300_000)
  end
end
