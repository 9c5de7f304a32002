# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/canonical'

RSpec.describe 'exported resources' do
  let(:run) { RealRun.new }
  let(:kinds) { File.read(File.expand_path('../fixtures/modules/kinds/manifests/init.pp', __dir__)) }
  let(:golden) { JSON.parse(File.read(File.expand_path('../fixtures/kinds.json', __dir__))) }

  after { run.clean }

  # The fixture contains neither positions nor the directory of the run.
  def portable(export)
    export.reject { |name, _| %w[file line].include?(name) }
  end

  it 'hands over every type alike on Puppet 7 and 8, and no secret' do
    run.manifest(<<~PUPPET + kinds).call
      @@kinds { 'all':
        string     => 'äöü "x"',
        integer    => 42,
        float      => 1.5,
        boolean    => false,
        one        => ['a'],
        empty      => [],
        hash       => { 'a' => { 'b' => 1 } },
        numbered   => { 1 => 'x' },
        regexp     => /a.b/,
        nothing    => default,
        timestamp  => Timestamp('2024-01-01T00:00:00 UTC'),
        timespan   => Timespan('0-01:30:00'),
        version    => SemVer('1.2.3'),
        range      => SemVerRange('>=1.0.0 <2.0.0'),
        binary     => Binary('AP8='),
        type       => Integer[1, 2],
        reference  => File['/x'],
        references => [Notify['x'], Notify['y']],
        uri        => URI('http://example.net/a'),
        secret     => Sensitive('hunter2'),
        nested     => { 'pw' => Sensitive('hunter2') },
        absent     => undef,
        tag        => ['Ring', 'storage-01'],
        require    => Notify['before'],
      }
      notify { 'before': }
    PUPPET
    exports = run.agent.asked('gate').first['exports']
    expect(exports.map { |export| portable(export) }).to eq(golden), run.said
    expect(exports.first.values_at('file', 'line')).to eq([run.path('code/production/manifests/site.pp'), 1])
    everything = Dir[File.join(run.dir, '*')].select { |file| File.file?(file) }.map { |file| File.read(file) }.join
    expect(everything + JSON.generate(run.agent.requests)).not_to include('hunter2')
  end

  it 'collects every type as it was exported' do
    # Data from the server has sorted keys.
    run.agent.exports = golden.map { |export| PuppetX::Tutti::Canonical.sort(export.merge('node' => 'other.example.net')) }
    run.manifest("Kinds <<| tag == 'ring' |>>\nfile { '/x': noop => true }\nnotify { ['x', 'y', 'before']: }\n#{kinds}").call
    text = run.events('done').find { |event| event['resource'] == 'Notify[kinds all]' }
    expect(text && text['message']).to eq(
      "defined 'message' as '42 1.5 false [a] [] {a => {b => 1}} /a.b/ 0-01:30:00.0 1.2.3 Integer[1, 2] File[/x] secret true'"
    ), run.said
    changed = run.events('start').map { |event| event['resource'] }
    expect(changed.index('Notify[before]')).to be < changed.index('Notify[kinds all]')
  end

  it 'leaves out the own exports that Puppet adds itself, and gives one answer to a question asked twice' do
    answers = [[export('theirs'), export('mine', node: 'node.example.net')], [export('later')]]
    run.agent.on('collect') { { ok: true, exports: answers.shift || [], degraded: false } }
    run.manifest(<<~PUPPET).call
      @@notify { 'mine': message => 'mine' }
      define more { Notify <<| |>> }
      more { 'a': }
      Notify <<| |>>
      @@file { '/far/away': }
      @notify { 'virtual': }
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.agent.asked('collect').length).to eq(1)
    started = run.events('start').map { |event| event['resource'] }
    expect(started).to include('Notify[mine]', 'Notify[theirs]').and(not_include('Notify[later]', 'File[/far/away]'))
    expect(run.agent.asked('gate').first['exports'].map { |export| export['title'] }).to eq(%w[/far/away mine])
  end

  RSpec::Matchers.define_negated_matcher :not_include, :include

  def export(title, node: 'other.example.net', **more)
    { 'type' => 'Notify', 'title' => title, 'tags' => ['notify', title], 'parameters' => { 'message' => title },
      'sensitive' => [], 'node' => node }.merge(more)
  end

  it 'asks in normal form, with the place of the collector' do
    run.manifest(<<~PUPPET).call
      class asker {
        Notify <<| (title == 'b' or message != 'A') and tag == 'RinG' |>>

        Notify <<| tag == 'ring' and (message != 'A' or title == 'b') |>>
        Notify <<| message == undef |>>
      }
      include asker
    PUPPET
    asked = run.agent.asked('collect')
    expect(asked.map { |request| request['filter'] }).to eq(
      [['and', ['=', 'tag', 'ring'], ['or', ['!=', 'message', 'A'], ['=', 'title', 'b']]], ['=', 'message', nil]]
    ), run.said
    site = run.path('code/production/manifests/site.pp')
    expect(asked.map { |request| request['at'] }).to eq([{ 'resource' => 'Class[Asker]', 'file' => site, 'line' => 2 },
                                                         { 'resource' => 'Class[Asker]', 'file' => site, 'line' => 5 }])
  end

  it 'fails when two nodes export the same resource, and names both' do
    run.agent.exports = [export('same'), export('same', node: 'third.example.net')]
    run.manifest("Notify <<| |>>\n").call
    expect([run.done['exit'], run.phases[-2]]).to eq([1, 'compile']), run.said
    expect(run.errors.last.values_at('message', 'file', 'line')).to match(
      [/Notify\[same\] is exported by other.example.net, and exported by third.example.net: .*Give each node's export a title of its own/,
       run.path('code/production/manifests/site.pp'), 1]
    )
  end

  it 'fails when two collectors bring the same resource of two nodes, and names both' do
    answers = [[export('same')], [export('same', node: 'third.example.net')]]
    run.agent.on('collect') { { ok: true, exports: answers.shift || [], degraded: false } }
    run.manifest("Notify <<| tag == 'a' |>>\nNotify <<| tag == 'b' |>>\n").call
    expect(run.errors.last['message']).to match(/Notify\[same\] is exported by other.example.net, and exported by third.example.net/), run.said
  end

  it 'fails when a node exports what this node has, and says where that is' do
    run.agent.exports = [export('same')]
    run.manifest("notify { 'same': }\nNotify <<| |>>\n").call
    expect(run.errors.last['message']).to match(/Notify\[same\] is declared on this node at .*site.pp:1, and exported by other.example.net/), run.said
  end

  it 'fails when a node exports what this node exports, too' do
    run.agent.exports = [export('same')]
    run.manifest("@@notify { 'same': }\nNotify <<| |>>\n").call
    expect(run.errors.last['message']).to match(/Notify\[same\] is exported by this node, too, and exported by other.example.net/), run.said
  end

  it 'lists them as data: one question with the collector, and no resource in the catalog' do
    file = { '__ptype' => 'Pcore::ResourceType', 'type_name' => 'File', 'title' => '/x' }
    run.agent.exports = [export('b'), export('a', 'parameters' => { 'message' => 'A', 'require' => file }), export('mine', node: 'node.example.net')]
    run.manifest(<<~PUPPET).call
      class reader {
        $all = tutti::exports(Notify, ['and', ['=', 'tag', 'RinG'], ['!=', 'message', 'x']])
        notify { 'listed': message => String($all.map |$it| { [$it['type'], $it['title'], $it['certname'], $it['tags'], $it['parameters']] }) }
      }
      include reader
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.said).to include(
      "[['Notify', 'a', 'other.example.net', ['a', 'notify'], {'message' => 'A', 'require' => File['/x']}], " \
      "['Notify', 'b', 'other.example.net', ['b', 'notify'], {'message' => 'b'}]]"
    )
    question = { 'type' => 'Notify', 'filter' => ['and', ['!=', 'message', 'x'], ['=', 'tag', 'ring']],
                 'at' => { 'resource' => 'Class[Reader]', 'file' => run.path('code/production/manifests/site.pp'), 'line' => 2 } }
    expect(run.agent.asked('collect')).to match([hash_including(question)])
    expect(run.events('start').map { |event| event['resource'] }.grep(/Notify/)).to eq(['Notify[listed]'])
  end

  it 'answers a collector as it has answered the function' do
    answers = [[export('a')], [export('later')]]
    run.agent.on('collect') { { ok: true, exports: answers.shift || [], degraded: false } }
    run.manifest("notify { String(tutti::exports('notify', ['=', 'tag', 'A']).length): }\nNotify <<| tag == 'a' |>>\n").call
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.events('start').map { |event| event['resource'] }.grep(/Notify/)).to contain_exactly('Notify[1]', 'Notify[a]')
    expect(run.agent.asked('collect').map { |request| request.values_at('type', 'filter') }).to eq([['Notify', ['=', 'tag', 'a']]])
  end

  it 'says what to use in place of puppetdb_query' do
    run.manifest("$nodes = puppetdb_query('nodes {}')\n").call
    expect(run.done['exit']).to eq(1), run.said
    expect(run.errors.last.values_at('message', 'line')).to match([/Unknown function: 'puppetdb_query'.*use tutti::exports\(TYPE, FILTER\).*tutti::value/, 1])
  end

  it 'leaves a puppetdb_query of the site alone' do
    run.write('code/production/modules/site/lib/puppet/functions/puppetdb_query.rb', <<~'RUBY')
      Puppet::Functions.create_function(:puppetdb_query) { def puppetdb_query(query); "real #{query}"; end }
    RUBY
    run.manifest("notify { puppetdb_query('nodes'): }\n").call
    expect(run.events('start').map { |event| event['resource'] }).to include('Notify[real nodes]'), run.said
  end

  it 'does not let a catalog through that was compiled for another node or environment' do
    enc = run.write('enc', "#!/bin/sh\nprintf 'environment: other\\nclasses: {}\\n'\n", mode: 0o755)
    run.write('code/other/manifests/site.pp', "notify { 'x': }\n")
    run.puppet_conf("node_terminus = exec\nexternal_nodes = #{enc}\n").manifest('').call
    expect(run.status.exitstatus).to eq(1), run.said
    expect(run.agent.asked('gate')).to be_empty
    expect(run.errors.last['message']).to match(/in environment other was compiled, node.example.net in environment production was ordered/)
    expect(run.phases).not_to include('apply')
  end
end
