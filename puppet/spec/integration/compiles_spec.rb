# frozen_string_literal: true

require_relative '../spec_helper'
require 'fileutils'
require 'open3'
require 'timeout'

# The examples check the compiles of a Puppet Server, in a process that is set up like a Puppet
# Server.
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

  # Returns the place of a line in the manifest, outside of classes.
  def place(line)
    { 'resource' => 'Class[main]', 'file' => "#{@dir}/environments/production/manifests/site.pp", 'line' => line }
  end

  # Starts a Puppet Server. The block gets a function that begins a compile, and a function that
  # waits for the end of a compile.
  def serving(within: 60)
    script = File.expand_path('../support/compile_server.rb', __dir__)
    Open3.popen2(RbConfig.ruby, '-I', File.expand_path('../../lib', __dir__), script, @dir, err: "#{@dir}/err") do |input, output, process|
      Timeout.timeout(within) do
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
      { 'query' => { 'kind' => 'value', 'key' => 'x' }, 'found' => true, 'digest' => digest('1'), 'seq' => 4, 'at' => place(1) },
      { 'query' => { 'kind' => 'collect', 'type' => 'File', 'filter' => ['=', 'tag', 'peer'] }, 'found' => true, 'digest' => digest('File'), 'seq' => 5,
        'at' => place(4) },
      { 'query' => { 'kind' => 'hiera', 'key' => 'port' }, 'found' => true, 'digest' => digest('80'), 'seq' => 3, 'at' => place(2) }
    )
    expect(handed['keys'].to_h { |key| key.values_at('key', 'found') }).to include('port' => true, 'other' => false)
    expect(handed['exports'].map { |export| export.values_at('type', 'title', 'parameters') }).to eq([['File', '/own', { 'content' => 'web-01' }]])
  end

  it 'asks for the groups of the node, once, and hands the question over' do
    manifest("file { '/groups': content => join(tutti::groups(), ',') }\nfile { '/again': content => join(tutti::groups([]), ',') }")
    agent.on('groups') { { ok: true, groups: %w[canary web], digest: digest('["canary","web"]'), seq: 6 } }
    expect(compile('web-01', 'run-1')).to eq('files' => { '/groups' => 'canary,web', '/again' => 'canary,web' })
    expect(agent.asked('compiled').first['reads']).to eq(
      [{ 'query' => { 'kind' => 'groups' }, 'found' => true, 'digest' => digest('["canary","web"]'), 'seq' => 6, 'at' => place(1) }]
    )
  end

  it 'gives groups only to nodes of Tutti' do
    manifest("file { '/groups': content => join(tutti::groups(['default']), ',') }")
    expect(compile('stranger', 'run-1')).to eq('files' => { '/groups' => 'default' })
    manifest("file { '/groups': content => String(tutti::groups()) }")
    expect(compile('stranger', 'run-1')).to match('error' => /tutti::groups: this Puppet was not started by Tutti/)
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
    # Puppet's own code runs in only one thread at a time, because some of it does not support
    # several threads.
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

  # The threads work like the threads of a Puppet Server, without waiting for each other.
  it 'mixes no records of compiles in four threads, fifty each' do
    manifest(<<~PUPPET)
      $me = $trusted['certname']
      file { '/value': content => tutti::value("of/${me}") }
      file { '/hiera': content => lookup("port_${me}") }
      file { '/shared': content => lookup('shared') }
      file { '/missing': content => tutti::value("none/${me}", 'default') }
      File <<| tag == $me |>>
      @@file { "/own/${me}": content => $me }
    PUPPET
    names = %w[web-01 web-02 web-03 web-04]
    handed = Queue.new
    agent.on('value') do |request, hello|
      found = request['key'] == "of/#{hello['certname']}"
      { ok: true, found: found, value: "for #{hello['run']}", digest: found ? digest(hello['run']) : '', seq: 4 }
    end
    agent.on('hiera') do |_, hello|
      data = { "port_#{hello['certname']}" => "port of #{hello['run']}", 'shared' => "shared of #{hello['run']}" }
      { ok: true, data: data, digests: data.transform_values { |value| digest(value) }, seq: 3 }
    end
    agent.on('collect') do |request, hello|
      export = { 'type' => 'File', 'title' => "/peer/#{hello['certname']}", 'node' => 'other', 'parameters' => { 'content' => hello['run'] } }
      { ok: true, digest: digest(hello['run'] + request['filter'].last), seq: 5, exports: [export] }
    end
    agent.on('compiled') { |request, hello| handed.push([hello['certname'], hello['run'], request]) && { ok: true } }
    came = {}
    serving(within: 300) do |start, ended|
      names.each { |name| start.call(name, "run-#{name}", 50) }
      Array.new(names.length) { ended.call }.each { |all| came[all['node']] = all['came'] }
    end
    names.each do |name|
      expected = Array.new(50) do |i|
        run = "run-#{name}-#{i}"
        { 'files' => { '/value' => "for #{run}", '/hiera' => "port of #{run}", '/shared' => "shared of #{run}", '/missing' => 'default',
                       "/peer/#{name}" => run } }
      end
      expect(came[name]).to eq(expected)
    end
    expect(handed.length).to eq(200)
    Array.new(200) { handed.pop }.each do |name, run, record|
      expect(record['reads'].map { |read| [*read['query'].values_at('kind', 'key', 'filter').compact, read['digest']] }).to contain_exactly(
        ['value', "of/#{name}", digest(run)], ['value', "none/#{name}", ''], ['collect', ['=', 'tag', name], digest(run + name)],
        ['hiera', "port_#{name}", digest("port of #{run}")], ['hiera', 'shared', digest("shared of #{run}")]
      )
      expect(record['keys'].map { |key| key['key'] }).to eq(%W[lookup_options port_#{name} shared])
      expect(record['exports'].map { |export| export.values_at('title', 'parameters') }).to eq([["/own/#{name}", { 'content' => name }]])
    end
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

  describe 'without the level in the global hiera.yaml' do
    before do
      below = { 'name' => 'Below', 'data_hash' => 'yaml_data', 'path' => "#{@dir}/below.yaml" }
      File.write('hiera.yaml', JSON.generate('version' => 5, 'hierarchy' => [below]))
    end

    [
      { reason: 'has the value of somebody else', text: "file { '/hiera': content => lookup('port') }" },
      { reason: 'has none', text: "file { '/hiera': content => lookup('port') + lookup('nowhere') }" }
    ].each do |row|
      it "has no catalog where Tutti has a key that the compile looked up and #{row[:reason]}" do
        manifest(row[:text])
        %w[run-1 daemon].each do |run|
          expect(compile('web-01', run)['error']).to include(
            "tutti: the Hiera level of Tutti is missing: #{@dir}/hiera.yaml needs {name: Tutti, lookup_key: tutti::hiera} as its first level; " \
            'without it this Puppet Server compiles past keys that Tutti has: "port"'
          )
        end
        handed = agent.asked('compiled')
        expect(handed.map { |request| request.values_at('failed', 'exports', 'waits') }).to eq([[true, [], []]])
        expect(handed.first['reads'].map { |read| read['query']['key'] }).to eq(['port'])
      end
    end

    it 'leaves an error alone that does not follow from it' do
      manifest("$port = lookup('port')\nfail('on purpose')")
      expect(compile('web-01', 'run-1')['error']).to match(/on purpose/)
    end

    it 'compiles where Tutti has no such key, and where nothing was looked up' do
      manifest("file { '/hiera': content => lookup('other', default_value => 'none') }")
      expect(compile('web-01', 'run-1')).to eq('files' => { '/hiera' => 'none' })
      manifest("file { '/hiera': content => 'plain' }")
      expect(compile('web-01', 'run-1')).to eq('files' => { '/hiera' => 'plain' })
      expect(agent.asked('hiera').length).to eq(1)
    end
  end

  describe 'with PuppetDB' do
    let(:peer) { ['other', 'File', '/peer', { 'content' => 'of other' }] }
    let(:catalogs) do
      [{ 'certname' => 'other', 'transaction_uuid' => 'run-2', 'catalog_uuid' => 'c2' },
       { 'certname' => 'third', 'transaction_uuid' => nil, 'catalog_uuid' => 'c3' }]
    end

    before do
      File.write('tutti-server.yaml', "socket: #{@dir}/s\nexports: puppetdb\n")
      manifest("File <<| tag == 'x' |>>\nFile <<| tag == 'y' |>>\n@@file { '/own': content => 'x' }")
      agent.on('collect') do |request|
        File.write('asked', "tutti #{request['filter'].last}\n", mode: 'a')
        { ok: true, exports: [], digest: digest(request['filter'].last), seq: 5, lags: [] }
      end
      puppetdb(peer)
    end

    def puppetdb(*resources, catalogs: self.catalogs)
      File.write('puppetdb.json', JSON.generate('resources' => resources, 'catalogs' => catalogs))
    end

    it 'takes what PuppetDB answers, and lets Tutti compare the catalogs that it was made of' do
      puppetdb(peer, ['late', 'File', '/late', { 'content' => 'z' }])
      expect(compile('web-01', 'run-1')).to eq('files' => { '/peer' => 'of other', '/late' => 'z' })
      expect(agent.asked('collect').first['stored']).to eq(
        'other' => { 'transaction_uuid' => 'run-2', 'catalog_uuid' => 'c2', 'found' => true },
        'third' => { 'transaction_uuid' => '', 'catalog_uuid' => 'c3' }, 'late' => { 'found' => true }
      )
      handed = agent.asked('compiled').last
      expect(handed['reads'].map { |read| read['digest'] }).to eq([digest('x'), digest('y')])
      expect(handed).to include('lags' => [], 'catalog_uuid' => File.readlines('stored', chomp: true)[1].split.last)
      expect(File.readlines('stored').map { |line| line.split.first(2) }).to eq([%w[facts web-01], %w[catalog web-01]])
    end

    it 'names both nodes of which PuppetDB has the same resource' do
      puppetdb(peer, ['late', 'File', '/peer', { 'content' => 'z' }])
      expect(compile('web-01', 'run-1')['error']).to match(%r{File\[/peer\] is exported by other, and exported by late})
    end

    it 'asks for the catalogs of a type once and before its resources, for those once a question, and Tutti after' do
      compile('web-01', 'run-1')
      asked = File.readlines('asked', chomp: true)
      expect(JSON.parse(asked.shift)).to eq(
        ['from', 'catalogs', ['extract', %w[certname transaction_uuid catalog_uuid],
                              ['in', 'certname', ['from', 'resources', ['extract', 'certname', ['and', %w[= type File], ['=', 'exported', true]]]]]]]
      )
      expect(asked).to eq(['resources File', 'tutti x', 'resources File', 'tutti y'])
    end

    it 'hands over by whom PuppetDB is behind, also if there is no catalog for that' do
      lags = [{ 'node' => 'other', 'run' => 'run-3' }]
      agent.on('collect') { { ok: true, exports: [], digest: digest('x'), seq: 5, lags: lags } }
      compile('web-01', 'run-1')
      manifest("File <<| tag == 'x' |>>\nnotify { 'x': require => File['/new'] }")
      expect(compile('web-01', 'run-1')['error']).to match(%r{Could not find resource 'File\[/new\]'})
      expect(agent.asked('compiled').map { |request| request['failed'] }).to eq([nil, true])
      expect(agent.asked('compiled').map { |request| request['lags'] }).to eq([lags, lags])
    end

    it 'has no catalog if it does not hear whether PuppetDB is behind' do
      agent.on('collect') { { ok: true, exports: [], digest: digest('x'), seq: 5 } }
      expect(compile('web-01', 'run-1')['error']).to match(/tutti: collect: the agent's answer has no lags as it should be/)
    end

    it 'has no catalog if PuppetDB does not say which it has' do
      puppetdb(peer, catalogs: { 'error' => 'not today' })
      expect(compile('web-01', 'run-1')['error']).to match(/tutti: PuppetDB does not say which catalogs it has: /)
      expect(File.readlines('asked').length).to eq(1)
    end

    it 'tells what a run of others exports before PuppetDB gets it, and asks nothing' do
      agent.on('compiled') do
        File.write('stored', "tutti\n", mode: 'a')
        { ok: true }
      end
      expect(compile('web-01', 'daemon')).to eq('files' => { '/peer' => 'of other' })
      handed = agent.asked('compiled').first
      expect(handed['exports'].map { |export| export['title'] }).to eq(['/own'])
      expect(handed.keys).to contain_exactly('op', 'exports', 'waits', 'catalog_uuid')
      expect(File.readlines('stored').map { |line| line.split.first }).to eq(%w[facts tutti catalog])
      expect(agent.asked('collect')).to eq([])
    end

    it 'hands over and stores nothing of a compile for a comparison' do
      expect(compile('web-01', 'looks')).to eq('files' => { '/peer' => 'of other', '/own' => 'x' })
      expect(agent.asked('compiled')).to eq([])
      expect(File.exist?('stored')).to be(false)
    end

    it 'gives PuppetDB no catalog whose exports Tutti has not taken' do
      agent.on('compiled') { { ok: false, code: 'refused', error: 'no grant' } }
      expect(compile('web-01', 'daemon')['error']).to match(/tutti: compiled: no grant \(refused\)/)
      expect(File.readlines('stored').map { |line| line.split.first }).to eq(%w[facts])
    end

    it 'answers also those that Tutti does not know' do
      expect(compile('stranger', 'daemon')).to eq('files' => { '/peer' => 'of other' })
    end
  end

  it 'refuses a file of its own that it does not understand' do
    manifest('')
    File.write('tutti-server.yaml', "export: puppetdb\n")
    expect(compile('web-01', 'run-1')['error']).to match(/tutti-server.yaml: there are `socket: PATH` and `exports: tutti\|puppetdb` only/)
  end
end
