# frozen_string_literal: true

require_relative '../spec_helper'
require 'fileutils'
require 'open3'
require 'timeout'

# The compiles of a Puppet Server, in a process that is set up as one.
RSpec.describe 'compiles on a Puppet Server' do
  around { |example| Dir.mktmpdir { |dir| Dir.chdir(@dir = dir) { example.run } } }

  let(:agent) do
    FakeAgent.new("#{@dir}/s", node: nil, run: nil).on('hello') do |request|
      { ok: true, node: request['certname'] != 'stranger', recorded: request['run'].start_with?('run-') }
    end
  end

  def digest(text)
    "sha256:#{Digest::SHA256.hexdigest(text)}"
  end

  before do
    FileUtils.mkdir_p(%w[environments/production/manifests modules])
    FileUtils.ln_s(File.expand_path('../..', __dir__), 'modules/tutti')
    File.write('hiera.yaml', JSON.generate('version' => 5, 'hierarchy' => [{ 'name' => 'Tutti', 'lookup_key' => 'tutti::hiera' },
                                                                           { 'name' => 'Below', 'data_hash' => 'yaml_data', 'path' => "#{@dir}/below.yaml" }]))
    File.write('below.yaml', "port: from below\n")
    File.write('tutti-server.yaml', "socket: #{@dir}/s\n")
    agent.on('hiera') { { ok: true, data: { 'port' => 80 }, digests: { 'port' => digest('80') }, seq: 3 } }
    agent.on('value') { |request| { ok: true, found: request['key'] == 'x', value: 1, digest: request['key'] == 'x' ? digest('1') : '', seq: 4 } }
    agent.on('compiled') { { ok: true } }
    agent.on('collect') do |request|
      { ok: true, digest: digest(request['type']), seq: 5,
        exports: [{ 'type' => 'File', 'title' => '/peer', 'node' => 'other', 'parameters' => { 'content' => 'of other' } }] }
    end
    agent.start
  end

  after { agent.stop }

  def manifest(text)
    File.write('environments/production/manifests/site.pp', text)
  end

  # A Puppet Server; the block gets what begins a compile, and what waits for one to end.
  def serving
    script = File.expand_path('../support/compile_server.rb', __dir__)
    Open3.popen2(RbConfig.ruby, '-I', File.expand_path('../../lib', __dir__), script, @dir, err: "#{@dir}/err") do |input, output, process|
      Timeout.timeout(60) do
        yield(->(*request) { input.puts(JSON.generate(request)) }, -> { JSON.parse(output.gets || raise(File.read('err'))) })
      end
      input.close
      raise File.read('err') unless process.value.success?
    end
  end

  def compile(*request)
    came = nil
    serving do |start, ended|
      start.call(*request)
      came = ended.call
    end
    came
  end

  whole = <<~PUPPET
    file { '/value': content => String(tutti::value('x')) }
    file { '/hiera': content => String(lookup('port')) }
    file { '/absent': content => lookup('other', default_value => 'none') }
    File <<| tag == 'Peer' |>>
    @@file { '/own': content => $trusted['certname'] }
  PUPPET

  it 'answers as the node would be answered, and hands over what was read and is exported' do
    manifest(whole)
    files = { '/value' => '1', '/hiera' => '80', '/absent' => 'none', '/peer' => 'of other' }
    expect(compile('web-01', 'run-1')).to eq('files' => files)
    expect(agent.asked('hello').first).to include('certname' => 'web-01', 'run' => 'run-1', 'protocol' => 1)
    handed = agent.asked('compiled').first
    expect(handed['reads']).to contain_exactly(
      { 'query' => { 'kind' => 'value', 'key' => 'x' }, 'found' => true, 'digest' => digest('1'), 'seq' => 4 },
      { 'query' => { 'kind' => 'collect', 'type' => 'File', 'filter' => ['=', 'tag', 'peer'] }, 'found' => true, 'digest' => digest('File'), 'seq' => 5 },
      { 'query' => { 'kind' => 'hiera', 'key' => 'port' }, 'found' => true, 'digest' => digest('80'), 'seq' => 3 }
    )
    expect(handed['keys'].to_h { |key| key.values_at('key', 'found') }).to include('port' => true, 'other' => false)
    expect(handed['exports'].map { |export| export.values_at('type', 'title', 'parameters') }).to eq([['File', '/own', { 'content' => 'web-01' }]])
  end

  it 'keeps compiles apart that go on at once' do
    manifest("file { '/value': content => String(tutti::value($trusted['certname'], 'none')) }\n" \
             "@@file { '/own': content => \"${lookup('port')} ${trusted['certname']}\" }")
    names = %w[web-01 web-02 web-03]
    asked = Queue.new
    release = names.to_h { |name| [name, Queue.new] }
    agent.on('value') do |request|
      asked << request['key']
      release[request['key']].pop
      { ok: true, found: true, value: "for #{request['key']}", digest: digest(request['key']), seq: 4 }
    end
    # Puppet's own code runs in one of them at a time, since not all of it may in several.
    came = []
    serving do |start, ended|
      names.each do |name|
        start.call(name, "run-#{name}")
        asked.pop
      end
      came = names.map do |name|
        release[name] << true
        ended.call
      end
    end
    expect(came.map { |result| result['files'] }).to eq(names.map { |name| { '/value' => "for #{name}" } })
    handed = agent.asked('compiled').map do |request|
      [request['reads'].map { |read| read['query']['key'] }, request['keys'].map { |key| key['key'] },
       request['exports'].map { |export| export['parameters']['content'] }]
    end
    expect(handed).to eq(names.map { |name| [[name, 'port'], %w[lookup_options port], ["80 #{name}"]] })
  end

  it 'gives a compile that is no run of Tutti the same answers, and hands nothing over' do
    manifest(whole)
    recorded, foreign = %w[run-1 daemon].map { |run| compile('web-01', run) }
    expect([foreign, agent.asked('compiled').length]).to eq([recorded, 1])
  end

  it 'compiles for a node that Tutti does not know as without Tutti' do
    manifest("file { '/value': content => String(tutti::value('x', 'default')) }\nfile { '/hiera': content => lookup('port') }")
    expect(compile('stranger', 'daemon')).to eq('files' => { '/value' => 'default', '/hiera' => 'from below' })
    manifest('File <<| |>>')
    expect(compile('stranger', 'daemon')['error']).to match(/collected in runs of Tutti only, and by its nodes/)
    expect(agent.requests.map { |request| request['op'] }.uniq).to eq(['hello'])
  end

  it 'has no catalog when nobody answers: that is no empty answer' do
    manifest(whole)
    agent.stop
    expect(compile('web-01', 'run-1')['error']).to match(%r{tutti: no agent answers hello on .*/s: .* \(unavailable\); without its answers there is no catalog})
  end

  it 'has no catalog when the server refuses, or does not take what was read' do
    manifest(whole)
    agent.on('value') { { ok: false, code: 'refused', error: 'no grant' } }
    expect(compile('web-01', 'run-1')['error']).to match(/tutti: value: no grant \(refused\)/)
    agent.on('value') { { ok: true, found: true, value: 1, digest: digest('1'), seq: 4 } }
    agent.on('compiled') { { ok: false, code: 'unavailable', error: 'away' } }
    expect(compile('web-01', 'run-1')['error']).to match(/tutti: compiled: away \(unavailable\)/)
  end

  it 'says what a compile waited for, and what it had read' do
    manifest("$a = tutti::value('x')\n$b = tutti::value('missing')")
    expect(compile('web-01', 'run-1')['error']).to match(/there is no value "missing"/)
    handed = agent.asked('compiled').first
    expect(handed).to include('failed' => true, 'exports' => [])
    expect(handed['reads'].map { |read| read['query']['key'] }).to eq(%w[x missing])
    expect(handed['waits'].map { |wait| wait['query'] }).to eq(['kind' => 'value', 'key' => 'missing'])
  end

  describe 'with PuppetDB' do
    before do
      File.write('tutti-server.yaml', "socket: #{@dir}/s\nexports: puppetdb\n")
      manifest('File <<| |>>')
    end

    def answered(*stored)
      File.write('puppetdb.json', JSON.generate(stored))
      files = compile('web-01', 'run-1')['files']
      [files, agent.asked('compiled').last['reads'].first['digest'] == digest('File')]
    end

    it 'takes what PuppetDB answers, and says where that is not what Tutti knows of its nodes' do
      peer = ['other', 'File', '/peer', { 'content' => 'of other', 'owner' => 'root' }]
      strange = ['stranger', 'File', '/strange', { 'content' => 'y' }]
      expect(answered(peer, strange)).to eq([{ '/peer' => 'of other', '/strange' => 'y' }, true])
      expect(answered(['other', 'File', '/peer', { 'content' => 'older' }])).to eq([{ '/peer' => 'older' }, false])
      expect(answered(strange)).to eq([{ '/strange' => 'y' }, false])
      expect(File.readlines('stored', chomp: true).first(2)).to eq(['facts web-01', 'catalog web-01'])
    end

    it 'answers also those that Tutti does not know' do
      File.write('puppetdb.json', '[["other", "File", "/peer", {"content": "z"}]]')
      expect(compile('stranger', 'daemon')).to eq('files' => { '/peer' => 'z' })
    end
  end

  it 'refuses a file of its own that it does not understand' do
    manifest('')
    File.write('tutti-server.yaml', "export: puppetdb\n")
    expect(compile('web-01', 'run-1')['error']).to match(/tutti-server.yaml: there are `socket: PATH` and `exports: tutti\|puppetdb` only/)
  end
end
