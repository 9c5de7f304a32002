# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/order'

RSpec.describe PuppetX::Tutti::Order do
  let(:good) do
    { 'protocol' => 1, 'run' => 'r', 'node' => 'n', 'mode' => 'apply', 'environment' => 'e', 'environmentpath' => '/p', 'socket' => '/s' }
  end

  it 'has defaults for what an agent may leave out' do
    order = described_class.new(good)
    expect([order.modulepath, order.tags, order.skip_tags, order.lock_timeout, order.gate_timeout]).to eq([[], [], [], 3600, 600])
    expect([order.noop?, order.debug?, order.digest_key, order.directories, order.code]).to eq([false, false, nil, {}, '/p/e'])
    expect(order.disabled_lockfile).to be_nil
  end

  it 'reads what is there' do
    order = described_class.new(good.merge('mode' => 'noop', 'debug' => true, 'tags' => ['a'], 'vardir' => '/v', 'digest_key' => 'k'))
    expect([order.noop?, order.debug?, order.tags, order.directories, order.digest_key]).to eq([true, true, ['a'], { 'vardir' => '/v' }, 'k'])
  end

  [
    { reason: 'is another protocol', change: { 'protocol' => 2 }, error: /asks for protocol 2/ },
    { reason: 'has no run', change: { 'run' => nil }, error: /missing or wrong: run/ },
    { reason: 'has an empty node', change: { 'node' => '' }, error: /missing or wrong: node/ },
    { reason: 'has seconds that are none', change: { 'gate_timeout' => 0 }, error: /missing or wrong: gate_timeout/ },
    { reason: 'has a list that is none', change: { 'tags' => 'a' }, error: /missing or wrong: tags/ },
    { reason: 'has a list of numbers', change: { 'modulepath' => [1] }, error: /missing or wrong: modulepath/ },
    { reason: 'has an unknown mode', change: { 'mode' => 'x' }, error: /unknown mode "x", expected one of apply, noop, compile/ }
  ].each do |row|
    it "refuses an order that #{row[:reason]}" do
      expect { described_class.new(good.merge(row[:change])) }.to raise_error(PuppetX::Tutti::Refused, row[:error])
    end
  end

  [
    { reason: 'is not there', content: nil, error: /No such file/ },
    { reason: 'is not JSON', content: '{', error: /cannot read the order/ },
    { reason: 'is no object', content: '[]', error: /is not an object/ }
  ].each do |row|
    it "refuses a run.json that #{row[:reason]}" do
      Dir.mktmpdir do |dir|
        File.write(File.join(dir, 'run.json'), row[:content]) if row[:content]
        expect { described_class.read(dir) }.to raise_error(PuppetX::Tutti::Refused, row[:error])
      end
    end
  end
end
