# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/run'

RSpec.describe 'the type tutti_value' do
  let(:type) { Puppet::Type.type(:tutti_value) }
  let(:run) { instance_double(PuppetX::Tutti::Run) }

  before { PuppetX::Tutti::Run.current = run }

  after { PuppetX::Tutti::Run.current = nil }

  def resource(attributes)
    type.new(Puppet::Resource.new('Tutti_value', 't/k', parameters: attributes))
  end

  def published(found, value = nil)
    allow(run).to receive(:published).with('t/k', anything).and_return(PuppetX::Tutti::Run::Answer.new(found, value))
  end

  def is(resource)
    resource.property(:ensure).retrieve
  end

  [['a'], [], {}, { 'a' => [1, nil] }, false, true, 1, 1.5, 'x', ''].each do |value|
    it "keeps the value #{value.inspect} and publishes it" do
      expect(run).to receive(:publish).with('t/k', value)
      resource = resource(value: value)
      expect(resource[:value]).to eq(value)
      resource.property(:ensure).sync
    end
  end

  [
    { reason: 'nothing is given', attributes: {}, error: /nothing to publish/ },
    { reason: 'both are given', attributes: { value: 1, source_file: '/x' }, error: /exclude each other/ },
    { reason: 'the file is relative', attributes: { source_file: 'x' }, error: /not an absolute path/ },
    { reason: 'the key has an empty word', attributes: { key: 'a//b', value: 1 }, error: /is not a key/ },
    { reason: 'the key begins with a slash', attributes: { key: '/a', value: 1 }, error: /is not a key/ },
    { reason: 'the key has a blank', attributes: { key: 'a b', value: 1 }, error: /is not a key/ },
    { reason: 'the value is a regular expression', attributes: { value: [{ 'a' => /x/ }] }, error: /contains a Regexp/ },
    { reason: 'a hash has a number as key', attributes: { value: { 1 => 'a' } }, error: /a hash with the key 1/ },
    { reason: 'a Sensitive is inside',
      attributes: { value: { 'a' => [Puppet::Pops::Types::PSensitiveType::Sensitive.new('hunter2')] } }, error: /contains a Sensitive/ }
  ].each do |row|
    it "refuses when #{row[:reason]}" do
      expect { resource(row[:attributes]) }.to raise_error(Puppet::Error) { |error|
        expect(error.message).to match(row[:error]).and(satisfy { |text| !text.include?('hunter2') })
      }
    end
  end

  # Returns a Sensitive value in the form of a catalog: the clear value, and the name of the
  # parameter in a list.
  def secret(attributes)
    source = Puppet::Resource.new('Tutti_value', 't/k', parameters: { value: 'hunter2' }.merge(attributes))
    source.sensitive_parameters << :value
    source.file = '/site.pp'
    source.line = 3
    type.new(source)
  end

  it 'refuses a Sensitive value that is for nobody, with its position and without showing it' do
    shown = %r{Tutti_value\[t/k\]: the value is Sensitive: say whom it is for.*\(file: /site.pp, line: 3\)}
    expect { secret({}) }.to(raise_error { |error| expect(error.to_s).to match(shown).and(satisfy { |text| !text.include?('hunter2') }) })
  end

  it 'refuses to seal what is not Sensitive' do
    expect { resource(value: 1, for: 'web') }.to raise_error(Puppet::Error, /`for` seals a value that is Sensitive/)
  end

  ['', 'a b', 'user:x', ['web', 7]].each do |target|
    it("refuses a secret for #{target.inspect}") { expect { secret(for: target) }.to raise_error(Puppet::Error, /the name of a group/) }
  end

  it 'publishes a secret for groups and nodes, and has it as the agent says' do
    targets = %w[group:db group:web node:a.example.net]
    value = secret(for: ['web', 'node:a.example.net', 'group:db', 'web'])
    allow(run).to receive(:published_secret).with('t/k', 'hunter2', targets).and_return(:outdated, :present, :absent)
    expect([is(value), is(value), is(value)]).to eq(%i[outdated present absent])
    expect(run).to receive(:publish_secret).with('t/k', 'hunter2', targets)
    value.property(:ensure).sync
  end

  it 'requires its file' do
    file = Puppet::Type.type(:file).new(path: '/x', ensure: :present)
    value = resource(source_file: '/x')
    catalog = Puppet::Resource::Catalog.new
    catalog.add_resource(file, value)
    expect(value.autorequire.map { |edge| edge.source.ref }).to eq(['File[/x]'])
  end

  [
    { reason: 'it was never published', ensure: :present, found: false, is: :absent },
    { reason: 'another value is published', ensure: :present, found: true, value: '1', is: :outdated },
    { reason: 'the same value is published', ensure: :present, found: true, value: { 'b' => 1, 'a' => 2 }, is: :present },
    { reason: 'a float is published, not an integer', ensure: :present, found: true, value: { 'a' => 2.0, 'b' => 1 }, is: :outdated },
    { reason: 'something is to be withdrawn', ensure: :absent, found: true, value: 7, is: :present },
    { reason: 'nothing is to be withdrawn', ensure: :absent, found: false, is: :absent }
  ].each do |row|
    it "is #{row[:is]} when #{row[:reason]}" do
      published(row[:found], row[:value])
      attributes = row[:ensure] == :absent ? { ensure: :absent } : { value: { 'a' => 2, 'b' => 1 } }
      expect(is(resource(attributes))).to eq(row[:is])
    end
  end

  it 'distinguishes integers and floats, and takes the two zeros for one' do
    rows = [[1, 1.0], [[1.0], [1]], [1.0, 1.0], [0.0, -0.0]]
    states = rows.map { |old, new| published(true, old) && is(resource(value: new)) }
    expect(states).to eq(%i[outdated outdated present present])
  end

  it 'publishes the digest of a file, as the file is then' do
    Dir.mktmpdir do |dir|
      path = File.join(dir, 'f')
      value = resource(source_file: path)
      published(false)
      expect(is(value)).to eq(:absent)
      expect { value.property(:ensure).sync }.to raise_error(Puppet::Error, /does not exist/)
      File.write(path, 'x')
      expect(run).to receive(:publish).with('t/k', "sha256:#{Digest::SHA256.hexdigest('x')}")
      value.property(:ensure).sync
    end
  end

  it 'withdraws' do
    expect(run).to receive(:withdraw).with('t/k')
    resource(ensure: :absent).property(:ensure).sync
  end

  it 'is in sync, with one warning, where there is no run' do
    PuppetX::Tutti::Run.current = nil
    PuppetX::Tutti::Run.instance_variable_set(:@warned, nil)
    allow(Puppet).to receive(:warning)
    states = [resource(value: 1), resource(ensure: :absent), resource(source_file: '/none')].map { |value| is(value) }
    expect(states).to eq(%i[present absent present])
    expect(Puppet).to have_received(:warning).once.with(/not started by Tutti/)
  end

  it 'is in sync, with one warning, in a local run' do
    PuppetX::Tutti::Run.instance_variable_set(:@warned, nil)
    allow(Puppet).to receive(:warning)
    allow(run).to receive(:published).and_return(nil)
    states = [resource(value: 1), resource(ensure: :absent), resource(source_file: '/none')].map { |value| is(value) }
    expect(states).to eq(%i[present absent present])
    expect(Puppet).to have_received(:warning).once.with(/a local run publishes nothing/)
  end

  it 'does nothing when it is refreshed' do
    expect(resource(value: 1)).not_to respond_to(:refresh)
  end

  it 'documents every attribute' do
    (type.properties + type.parameters.map { |name| type.paramclass(name) }).each do |attribute|
      expect(attribute.doc.to_s).not_to be_empty unless attribute.name == :provider
    end
  end
end
