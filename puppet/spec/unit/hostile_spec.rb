# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/client'
require 'puppet_x/tutti/order'
require 'puppet_x/tutti/run'

# The answer of the agent may be damaged. If the answer is damaged, the question has no answer, and the error
# gives a reason. The client never returns an empty answer, and no run passes the gate.
RSpec.describe 'hostile answers' do
  around { |example| Dir.mktmpdir { |dir| (@path = File.join(dir, 's')) && example.run } }

  let(:agent) { FakeAgent.new(@path, node: 'n', run: 'r').start }
  let(:order) do
    PuppetX::Tutti::Order.new('protocol' => 1, 'run' => 'r', 'node' => 'n', 'mode' => 'apply',
                              'environment' => 'e', 'environmentpath' => '/p', 'socket' => @path)
  end
  let(:client) { PuppetX::Tutti::Client.new(@path, { 'run' => 'r', 'certname' => 'n' }, reconnect: 0.3) }
  let(:run) { PuppetX::Tutti::Run.new(order, client) }

  after do
    client.close
    agent.stop
  end

  def deep(levels)
    Array.new(levels).inject(1) { |inner, _| [inner] }
  end

  questions = {
    'hiera' => ->(run) { run.hiera },
    'value' => ->(run) { run.value('k', {}) },
    'collect' => ->(run) { run.collect('Notify', nil, {}) },
    'published' => ->(run) { run.published('k', { 'value' => 1 }) }
  }
  everything = {
    'nothing' => {}, 'null' => nil, 'a list' => [], 'a text' => 'ok', 'a number' => 1,
    'ok as a text' => { 'ok' => 'true', 'data' => {}, 'found' => false, 'exports' => [] },
    'ok alone' => { 'ok' => true },
    'nulls' => { 'ok' => true, 'data' => nil, 'found' => nil, 'value' => nil, 'exports' => nil },
    'other types' => { 'ok' => true, 'data' => [], 'found' => 'false', 'value' => 1, 'exports' => {} },
    'numbers' => { 'ok' => true, 'data' => 0, 'found' => 0, 'value' => 1, 'exports' => 0 },
    'a refusal of odd types' => { 'ok' => false, 'code' => [], 'error' => { 'a' => 1 } }
  }
  questions.each do |operation, question|
    everything.each do |what, answer|
      it "has no answer to #{operation} when the agent says #{what}" do
        agent.on(operation) { answer }
        expect { question.call(run) }.to raise_error(Puppet::Error, /\Atutti: .*#{operation}/)
      end
    end

    it "has no answer to #{operation} from what is nested without end" do
      agent.on(operation) { { 'ok' => true, 'data' => { 'k' => deep(2000) }, 'found' => true, 'value' => deep(2000), 'exports' => deep(2000) } }
      expect { question.call(run) }.to raise_error(Puppet::Error, /\Atutti: .*#{operation}/)
    end
  end

  [
    { reason: 'found, without a value', answer: { 'found' => true } },
    { reason: 'found, and null', answer: { 'found' => true, 'value' => nil } }
  ].each do |row|
    it "takes no value that is #{row[:reason]}" do
      agent.on('value') { { 'ok' => true }.merge(row[:answer]) }
      expect { run.value('k', {}) }.to raise_error(Puppet::Error, /has no value as it should be/)
    end
  end

  [
    { reason: 'no resource', export: 1 },
    { reason: 'of another type', export: { 'type' => 'Exec', 'title' => 'x', 'node' => 'm' } },
    { reason: 'of nobody', export: { 'type' => 'Notify', 'title' => 'x' } },
    { reason: 'without a title', export: { 'type' => 'Notify', 'title' => '', 'node' => 'm' } },
    { reason: 'with parameters that are none', export: { 'type' => 'Notify', 'title' => 'x', 'node' => 'm', 'parameters' => [] } }
  ].each do |row|
    it "takes no export that is #{row[:reason]}" do
      agent.on('collect') { { 'ok' => true, 'exports' => [{ 'type' => 'Notify', 'title' => 'a', 'node' => 'm' }, row[:export]] } }
      expect { run.collect('Notify', nil, {}) }.to raise_error(Puppet::Error, /has an export of Notify that is none/)
    end
  end

  everything.merge('another word' => { 'ok' => true, 'verdict' => 'GO' }, 'a list with go' => { 'ok' => true, 'verdict' => ['go'] }).each do |what, answer|
    it "lets nothing through the gate when the agent says #{what}" do
      agent.on('gate') { answer }
      allow(PuppetX::Tutti::CatalogDigest).to receive(:of).and_return('d')
      allow(PuppetX::Tutti::FactsDigest).to receive(:of).and_return('f')
      run.facts = {}
      environment = Puppet::Node::Environment.create(:e, [])
      Puppet.override(current_environment: environment, environments: Puppet::Environments::Static.new(environment)) do
        expect(run.gate(Puppet::Resource::Catalog.new('n')).first).not_to eq('go')
      end
    end
  end

  it 'reads and writes values as deep as the server keeps them' do
    agent.on('hiera') { { 'ok' => true, 'data' => { 'k' => deep(250) } } }
    expect(run.hiera['k'].flatten).to eq([1])
    run.publish('k', deep(250))
    expect(agent.store['k'].flatten).to eq([1])
  end
end
