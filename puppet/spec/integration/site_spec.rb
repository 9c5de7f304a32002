# frozen_string_literal: true

require_relative '../spec_helper'

# A run uses the settings of the site, except settings that would make the run different from the
# order.
RSpec.describe "the site's own settings" do
  let(:run) { RealRun.new }

  after { run.clean }

  def messages
    run.events('done').map { |event| event['message'] }.compact.grep(/defined 'message'/).map { |text| text[/as '(.*)'/, 1] }
  end

  def conf
    Dir[run.path('conf/*')].select { |file| File.file?(file) }.to_h { |file| [file, File.read(file)] }
  end

  it 'honours environment.conf: manifest, modulepath and config_version' do
    run.write('code/production/environment.conf', "manifest = entry\nmodulepath = site\nconfig_version = scripts/version\n")
    run.write('code/production/scripts/version', "#!/bin/sh\necho release-7\n", mode: 0o755)
    run.write('code/production/entry/one.pp', "include profile::a\n")
    run.write('code/production/entry/two.pp', "notify { 'two': message => tutti::value('k', 'default') }\n")
    run.write('code/production/site/profile/manifests/a.pp', "class profile::a { notify { 'one': message => $environment } }\n")
    run.call
    expect(messages).to contain_exactly('production', 'default'), run.said
    expect(run.report['configuration_version']).to eq('release-7')
  end

  it "puts Tutti's hiera level above the site's global one, the environment and the modules" do
    run.agent.hiera = { 'a::tutti' => 'from tutti', 'b' => { 'c' => [1, false] }, 'a::merged' => { 'x' => 1 },
                        'lookup_options' => { 'a::merged' => { 'merge' => 'deep' } } }
    run.write('conf/hiera.yaml', <<~YAML)
      version: 5
      defaults: {datadir: global, data_hash: yaml_data}
      hierarchy:
        - {name: node, path: "%{trusted.certname}.yaml"}
        - {name: other, datadir: elsewhere, data_hash: yaml_data, path: common.yaml}
    YAML
    run.write('conf/global/node.example.net.yaml', "a::tutti: global\na::global: from global\n")
    run.write('conf/elsewhere/common.yaml', "a::other: from other\na::global: other\n")
    run.write('code/production/hiera.yaml', "version: 5\nhierarchy:\n- {name: e, path: e.yaml}\n")
    run.write('code/production/data/e.yaml', "a::tutti: e\na::global: e\na::env: from env\na::merged: {'y': 2}\n")
    run.manifest(<<~PUPPET).call
      class a($tutti, $global, $other, $env, $merged, $default = 'from default') {
        notify { 'all': message => "${tutti}, ${global}, ${other}, ${env}, ${default}, ${merged}" }
        notify { 'dug': message => String(lookup('b.c')) }
      }

      include a
    PUPPET
    expect(messages).to contain_exactly('from tutti, from global, from other, from env, from default, {y => 2, x => 1}', '[1, false]'), run.said
    keys = run.agent.asked('gate').first['keys']
    expect(keys.map { |key| key.values_at('key', 'found') }).to eq(
      [['a::default', false], ['a::env', false], ['a::global', false], ['a::merged', true], ['a::other', false],
       ['a::tutti', true], ['b', true], ['lookup_options', true]]
    )
    site = run.path('code/production/manifests/site.pp')
    at = keys.to_h { |key| [key['key'], key['at']] }
    expect(at['a::env']).to eq('resource' => 'Class[A]', 'file' => site, 'line' => 6)
    expect(at['b']).to eq('resource' => 'Class[A]', 'file' => site, 'line' => 3)
    expect(run.agent.asked('hiera').length).to eq(1)
  end

  it 'keeps the gate whatever puppet.conf and routes.yaml say, and leaves nothing in them' do
    run.write('conf/routes.yaml', "apply:\n  catalog:\n    cache: json\n  resource:\n    terminus: ral\n")
    run.puppet_conf(<<~CONF)
      storeconfigs = true
      storeconfigs_backend = puppetdb
      catalog_cache_terminus = json
      data_binding_terminus = none
      use_cached_catalog = true
      splay = true
      splaylimit = 600
      tags = nowhere
      skip_tags = notify
      node_name_fact = kernel
      report = false
      noop = false
    CONF
    before = conf
    run.agent.hiera = { 'k' => 'from tutti' }
    run.manifest("notify { 'a': message => lookup('k') }\nNotify <<| |>>\n").call
    expect([run.status.exitstatus, messages]).to eq([2, ['from tutti']]), run.said
    expect([run.agent.asked('gate').length, run.agent.asked('collect').length]).to eq([1, 1])
    expect(conf).to eq(before)
  end

  it 'limits a run to tags when the order does' do
    run.order.merge!('tags' => %w[one two], 'skip_tags' => ['two'])
    run.manifest("notify { ['one', 'two', 'three']: }\n").call
    expect(messages).to eq(['one']), run.said
  end

  it 'takes the lock that `puppet agent` uses, also where it is set for the agent only' do
    lock = run.path('elsewhere.lock')
    run.puppet_conf("[agent]\nagent_catalog_run_lockfile = #{lock}\n")
    run.manifest("exec { '/bin/cp #{lock} #{run.path('copy')}': }\n")
    pid = nil
    run.call { |started| pid = started }
    expect(File.read(run.path('copy'))).to eq(pid.to_s), run.said
    expect(File.exist?(lock)).to be(false)
  end

  it "makes what has no mode as Puppet's daemon does, whatever the agent's umask" do
    run.manifest("file { '#{run.path('made')}': ensure => directory }\n")
    was = File.umask(0o077)
    run.call
    expect(File.stat(run.path('made')).mode & 0o777).to eq(0o755), run.said
  ensure
    File.umask(was)
  end

  it 'does not see facts and plugins of an old pluginsync' do
    run.write('var/lib/facter/old.rb', "Facter.add(:old) { setcode { 'old' } }\n")
    run.write('var/lib/puppet/functions/old.rb', "Puppet::Functions.create_function(:old) { def old; 1; end }\n")
    run.write('var/facts.d/older.txt', "older=1\n")
    run.manifest("notify { 'a': message => String([$facts['old'], $facts['older']]) }\n").call
    expect(messages).to eq(['[undef, undef]']), run.said
  end

  [
    { reason: 'puppet.conf says noop', conf: "noop = true\n", error: /puppet.conf sets noop = true/ },
    { reason: "the agent's mode is another one", hello: { ok: true, mode: 'noop' }, error: /the agent says mode "noop"/ },
    { reason: 'the protocol is another one', order: { 'protocol' => 2 }, error: /asks for protocol 2, this module speaks 1/ },
    { reason: 'the order is not complete', order: { 'node' => '', 'mode' => 'destroy' }, error: /missing or wrong: node/ },
    { reason: 'the mode is unknown', order: { 'mode' => 'destroy' }, error: /unknown mode "destroy"/ },
    { reason: 'hiera.yaml is of version 3', hiera: ":backends: [yaml]\n", error: /not Hiera version 5/ },
    { reason: 'the code has a tutti of its own', file: 'code/production/modules/tutti/manifests/x.pp', error: /has a module `tutti` of its own/ },
    { reason: 'the module is not on the modulepath', order: { 'modulepath' => [] }, error: /is not on the modulepath/ }
  ].each do |row|
    it "refuses when #{row[:reason]}" do
      run.manifest("notify { 'a': }\n")
      run.puppet_conf(row[:conf]) if row[:conf]
      run.agent.on('hello') { row[:hello] } if row[:hello]
      run.write('conf/hiera.yaml', row[:hiera]) if row[:hiera]
      run.write(row[:file], '') if row[:file]
      run.order.merge!(row[:order] || {})
      run.call
      expect(run.status.exitstatus).to eq(64), run.said
      expect(run.done['error']['class']).to eq('PuppetX::Tutti::Refused')
      expect(run.done['error']['message']).to match(row[:error])
      expect(File.exist?(run.path('var/state/agent_catalog_run.lock'))).to be(false)
      expect(run.agent.asked('gate')).to be_empty
    end
  end
end
