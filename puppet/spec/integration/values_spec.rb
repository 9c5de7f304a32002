# frozen_string_literal: true

require_relative '../spec_helper'

RSpec.describe 'shared values' do
  let(:run) { RealRun.new }

  after { run.clean }

  it 'publishes every type of JSON as it is, and the digest of a file that the same run made' do
    file = run.path('ring')
    run.manifest(<<~PUPPET).call
      tutti_value { 't/string': value => 'x' }
      tutti_value { 't/one': value => ['a'] }
      tutti_value { 't/empty': value => [] }
      tutti_value { 't/false': value => false }
      tutti_value { 't/number': value => 1 }
      tutti_value { 't/float': value => 1.5 }
      tutti_value { 't/hash': value => { 'a' => { 'b' => [undef, {}] } } }
      tutti_value { 't/file': source_file => '#{file}' }
      tutti_value { 'title': key => 't/key', value => 'k' }
      file { '#{file}': ensure => file, content => 'ring' }
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.agent.store).to eq(
      't/string' => 'x', 't/one' => ['a'], 't/empty' => [], 't/false' => false, 't/number' => 1, 't/float' => 1.5,
      't/hash' => { 'a' => { 'b' => [nil, {}] } }, 't/file' => "sha256:#{Digest::SHA256.hexdigest('ring')}", 't/key' => 'k'
    )
  end

  it 'names at the gate what the catalog wants published' do
    run.manifest(<<~PUPPET).call
      tutti_value { 'b': value => 1 }
      tutti_value { 'title': key => 'a', value => 1 }
      tutti_value { 'gone': ensure => absent }
      @tutti_value { 'virtual': value => 1 }
    PUPPET
    expect(run.agent.asked('gate').first['values']).to eq(%w[a b])
  end

  it 'publishes what differs only, says so, and takes a refresh' do
    run.agent.store.merge!('same' => { 'b' => 1, 'a' => 2 }, 'other' => 1, 'gone' => 1)
    run.manifest(<<~PUPPET).call
      notify { 'event': }
      ~> tutti_value { 'same': value => { 'a' => 2, 'b' => 1 } }
      tutti_value { 'other': value => '1' }
      tutti_value { 'new': value => 1 }
      tutti_value { 'gone': ensure => absent }
      tutti_value { 'never': ensure => absent }
    PUPPET
    expect(run.agent.asked('publish').map { |request| request['key'] }).to contain_exactly('other', 'new'), run.said
    expect(run.agent.asked('withdraw').map { |request| request['key'] }).to eq(['gone'])
    messages = run.events('done').to_h { |event| [event['resource'], event['message']] }
    expect(messages).to include('Tutti_value[other]' => 'published a new value', 'Tutti_value[new]' => 'published',
                                'Tutti_value[gone]' => 'withdrawn', 'Tutti_value[same]' => nil, 'Tutti_value[never]' => nil)
  end

  it 'publishes nothing in a local run, and changes all else' do
    run.agent.local = true
    File.write(run.path('ring'), 'ring')
    run.manifest(<<~PUPPET).call
      tutti_value { 'a': value => [1] }
      tutti_value { 'b': ensure => absent }
      tutti_value { 'c': source_file => '#{run.path('ring')}' }
      tutti_value { 'd': source_file => '/does/not/exist' }
      notify { 'x': }
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.agent.asked('publish') + run.agent.asked('withdraw')).to be_empty
    expect(run.agent.asked('published').map { |request| request.slice('key', 'value', 'withdraw') }).to contain_exactly(
      { 'key' => 'a', 'value' => [1] }, { 'key' => 'b', 'withdraw' => true },
      { 'key' => 'c', 'value' => "sha256:#{Digest::SHA256.hexdigest('ring')}" }, { 'key' => 'd', 'value' => nil }
    )
    expect(run.report['resource_statuses'].select { |_, status| status['changed'] }.keys).to eq(['Notify[x]'])
  end

  it 'publishes nothing in a noop run, and shows what it would' do
    run.order['mode'] = 'noop'
    run.manifest("tutti_value { 'a': value => 1 }\ntutti_value { 'b': source_file => '/does/not/exist' }\n").call
    expect([run.status.exitstatus, run.agent.store]).to eq([0, {}]), run.said
    expect(run.report['noop_pending']).to be(true)
    expect(run.events('done').count { |event| event['noop'] }).to eq(2)
  end

  [
    { reason: 'the agent refuses', manifest: "tutti_value { 'a': value => 1 }\n", error: /no grant to write a \(refused\)/ },
    { reason: 'the file does not exist', manifest: "tutti_value { 'a': source_file => '/does/not/exist' }\n", error: /does not exist/ }
  ].each do |row|
    it "fails the resource when #{row[:reason]}, not the run" do
      run.agent.on('publish') { { ok: false, code: 'refused', error: 'no grant to write a' } }
      run.manifest("#{row[:manifest]}notify { 'rest': }\n").call
      expect(run.status.exitstatus).to eq(6), run.said
      event = run.events('done').find { |line| line['resource'] == 'Tutti_value[a]' }
      expect([event['failed'], event['message']]).to match([true, row[:error]])
    end
  end
end
