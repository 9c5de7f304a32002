# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/run'
require 'puppet_x/tutti/launcher'
require 'puppet/indirector/resource/tutti'
require 'puppet/indirector/catalog/tutti'
require 'puppet/indirector/facts/tutti'

RSpec.describe 'termini' do
  let(:order) do
    PuppetX::Tutti::Order.new('protocol' => 1, 'run' => 'r', 'node' => 'n', 'mode' => 'apply',
                              'environment' => 'e', 'environmentpath' => '/p', 'socket' => '/s')
  end
  let(:client) do
    Class.new do
      attr_accessor :answer
      attr_reader :asked

      def call(operation, fields = {}, timeout: nil)
        (@asked ||= []) << [operation, fields, timeout]
        answer.call
      end
    end.new
  end
  let(:run) { PuppetX::Tutti::Run.new(order, client) }

  before { PuppetX::Tutti::Run.current = run }

  after { PuppetX::Tutti::Run.current = nil }

  def request(key: nil, instance: nil, **options)
    instance_double(Puppet::Indirector::Request, key: key, instance: instance, options: options)
  end

  [Puppet::Resource::Tutti, Puppet::Resource::Catalog::Tutti, Puppet::Node::Facts::Tutti].each do |terminus|
    it "#{terminus} refuses without a run, finds nothing and serves nobody else" do
      PuppetX::Tutti::Run.current = nil
      operation = terminus == Puppet::Resource::Tutti ? :search : :save
      expect { terminus.new.public_send(operation, request) }.to raise_error(Puppet::Error, /in runs of Tutti only/)
      expect([terminus.new.find(request), terminus.new.allow_remote_requests?]).to eq([nil, false])
    end
  end

  it 'keeps the facts' do
    Puppet::Node::Facts::Tutti.new.save(request(instance: Puppet::Node::Facts.new('n', 'a' => 1)))
    expect(run.facts).to include('a' => 1)
  end

  describe 'of catalogs' do
    let(:launcher) { instance_double(PuppetX::Tutti::Launcher, gate: nil) }

    before { allow(PuppetX::Tutti::Launcher).to receive(:current).and_return(launcher) }

    def save(name, environment)
      Puppet::Resource::Catalog::Tutti.new.save(request(instance: Puppet::Resource::Catalog.new(name, Puppet::Node::Environment.remote(environment))))
    end

    it 'hands the catalog to the gate' do
      save('n', 'e')
      expect(launcher).to have_received(:gate).with(have_attributes(name: 'n'))
    end

    [%w[m e], %w[n f], %w[N e]].each do |name, environment|
      it "does not hand over a catalog of #{name} in #{environment}" do
        expected = /of #{name} in environment #{environment} was compiled, n in environment e was ordered/
        expect { save(name, environment) }.to raise_error(Puppet::Error, expected)
        expect(launcher).not_to have_received(:gate)
      end
    end
  end

  describe 'of resources' do
    around do |example|
      environment = Puppet::Node::Environment.create(:e, [])
      Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) { example.run }
    end

    let(:scope) do
      compiler = Puppet::Parser::Compiler.new(Puppet::Node.new('n', environment: Puppet.lookup(:current_environment)))
      compiler.topscope
    end

    def search(filter = nil)
      Puppet::Resource::Tutti.new.search(request(key: 'Notify', filter: filter, scope: scope))
    end

    def exports(*exports)
      client.answer = -> { { 'ok' => true, 'exports' => exports } }
    end

    it 'gives the exports of other nodes, with their origin, and asks once' do
      exports({ 'type' => 'Notify', 'title' => 'a', 'node' => 'm', 'parameters' => { 'message' => { '__ptype' => 'Default' }, 'tag' => ['T'] } },
              { 'type' => 'Notify', 'title' => 'b', 'node' => 'm' },
              { 'type' => 'Notify', 'title' => 'mine', 'node' => 'n' })
      found = [search, search].last
      expect(found.map { |resource| [resource.ref, resource.collector_id, resource[:message]] }).to eq(
        [['Notify[a]', 'm|Notify|a', :default], ['Notify[b]', 'm|Notify|b', nil]]
      )
      expect(found.first.tags).to include('t')
      expect(client.asked.map(&:first)).to eq(['collect'])
    end

    it 'makes new resources each time: the compiler changes them' do
      exports({ 'type' => 'Notify', 'title' => 'a', 'node' => 'm' })
      expect(search.first).not_to be(search.first)
    end

    it 'fails when the agent has no answer: that is not an empty answer' do
      client.answer = -> { raise PuppetX::Tutti::NoAnswer.new('unavailable', 'collect: the server is away') }
      expect { search }.to raise_error(Puppet::Error, 'tutti: collect: the server is away (unavailable)')
    end
  end
end
