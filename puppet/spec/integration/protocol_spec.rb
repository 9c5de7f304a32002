# frozen_string_literal: true

require_relative '../spec_helper'

RSpec.describe 'the run protocol' do
  let(:run) { RealRun.new }

  after { run.clean }

  it 'says who runs, first thing' do
    run.manifest("notify { 'a': }\n")
    pid = nil
    run.call { |started| pid = started }
    expect(run.agent.requests.first).to eq(
      'op' => 'hello', 'run' => run.run, 'protocol' => 1, 'opens' => true, 'module' => '0.1.0', 'puppet' => Puppet.version,
      'ruby' => RUBY_VERSION, 'certname' => 'node.example.net', 'pid' => pid
    ), run.said
    mark = JSON.parse(File.read(File.join(run.dir, 'pid')))
    expect(mark['pid']).to eq(pid)
    expect(mark['start']).to be_an(Integer).and(be_positive)
    expect(Dir.children(run.dir)).to contain_exactly(
      'run.json', 'pid', 'phase.jsonl', 'log.jsonl', 'events.jsonl', 'facts.json', 'fact-use.json', 'outside.json', 'report.json',
      'stdout', 'stderr', 'hiera.yaml', 'empty'
    )
    expect(JSON.parse(File.read(File.join(run.dir, 'facts.json')))).to include('kernel' => 'Linux', 'os' => include('family'))
    expect(run.phases.tally.select { |phase, count| count > 1 && phase != 'gate' }).to be_empty
  end

  it 'goes on when the agent is away for a while, and repeats its request' do
    away = false
    run.agent.on('value') do
      next { ok: true, found: true, value: 'again', degraded: false } if away

      away = true
      :hang_up
    end
    run.manifest("notify { 'a': message => tutti::value('k') }\n")
    run.call do
      Waiting.for(60, 'an agent that is away') { away }
      run.agent.stop
      run.agent.start
    end
    expect(run.status.exitstatus).to eq(2), run.said
    expect([run.agent.asked('value').length, run.agent.asked('hello').length]).to eq([2, 2])
  end

  it 'asks for a value once, and the record says where' do
    run.agent.values = { 'swift/rings' => { 'a' => [1, nil, 'x'] } }
    run.manifest(<<~PUPPET).call
      $first = tutti::value('swift/rings')
      class reader { notify { 'b': message => String(tutti::value('swift/rings', 1)) } }
      include reader
      notify { 'c': message => String(tutti::value('nobody/has', [1])) }
    PUPPET
    expect(run.events('done').map { |event| event['message'] }).to include(/\{.*a.* => \[1, undef, .*x.*\]\}/, /\[1\]/), run.said
    site = run.path('code/production/manifests/site.pp')
    expect(run.agent.asked('value').map { |request| request.values_at('key', 'at') }).to eq(
      [['swift/rings', { 'resource' => 'Class[main]', 'file' => site, 'line' => 1 }],
       ['nobody/has', { 'resource' => 'Class[main]', 'file' => site, 'line' => 4 }]]
    )
  end

  it 'hands over what a compile looked up that failed, before it ends' do
    run.agent.hiera = { 'found' => 1 }
    run.manifest("$a = lookup('found')\n$b = lookup('absent', default_value => 1)\nfail('no')\n").call
    asked = run.agent.asked('asked')
    expect(asked.length).to eq(1), run.said
    expect(asked.first['keys'].map { |key| key.values_at('key', 'found') }).to eq([['absent', false], ['found', true], ['lookup_options', false]])
    expect([asked.first['keys'][0]['at']['line'], asked.first['facts_digest']]).to match([2, /\Asha256:/])
    expect(run.agent.asked('gate')).to be_empty
  end

  it 'hands over nothing twice' do
    run.manifest("$a = lookup('absent', default_value => 1)\nnotify { 'a': }\n").call
    expect([run.agent.asked('gate').length, run.agent.asked('asked').length]).to eq([1, 0]), run.said
  end

  it 'waits for another Puppet through the agent, tells whom, and runs when it is gone' do
    run.agent.on('lock_wait') do
      run.release_lock
      { ok: true, released: true }
    end
    run.manifest("notify { 'a': }\n").hold_lock.call
    expect(run.status.exitstatus).to eq(2), run.said
    request = run.agent.asked('lock_wait').first
    expect(request['path']).to eq(run.path('var/state/agent_catalog_run.lock'))
    expect(request['command']).to match(/puppet-other/)
    waited = run.lines('phase.jsonl').map { |line| line['waiting_for'] }.compact
    expect(waited).to eq([request.slice('pid', 'command')])
    expect(File.exist?(request['path'])).to be(false)
  end

  it 'is taken for a Puppet by a stock Puppet that finds its lock' do
    check = "require 'puppet'; require 'puppet/util/pidlock'; Puppet.initialize_settings; " \
            'puts Puppet::Util::Pidlock.new(ARGV[0]).locked?'
    run.write('check.rb', check)
    lock = run.path('var/state/agent_catalog_run.lock')
    run.manifest("exec { 'look': command => '#{RbConfig.ruby} #{run.path('check.rb')} #{lock} > #{run.path('seen')}', " \
                 "provider => shell }\n")
    comm = nil
    run.call do |pid|
      run.wait_for(File.join(run.run, 'phase.jsonl'), /facts/)
      comm = File.read("/proc/#{pid}/comm").strip
    end
    expect(comm).to eq('puppet-tutti')
    expect(run.status.exitstatus).to eq(2), run.said
    skip 'Puppet itself needs ps here' unless system('which ps > /dev/null')
    expect(File.read(run.path('seen')).strip).to eq('true')
  end

  it 'does not fail when nobody reads what it says' do
    run.write('code/production/modules/m/lib/puppet/functions/talk.rb',
              "Puppet::Functions.create_function(:talk) { def talk; puts 'hello'; warn 'you'; end }\n")
    run.manifest("talk()\nnotify { 'a': }\n-> exec { '/bin/echo out': logoutput => true }\n-> notify { 'b': }\n")
    run.agent.start
    reader, writer = IO.pipe
    run.write("#{run.run}/run.json", JSON.generate(run.order))
    pid = Process.spawn(run.environment, RbConfig.ruby, RealRun::LAUNCHER, run.dir, in: reader, out: writer, err: writer)
    [reader, writer].each(&:close)
    status = Process.wait2(pid).last
    run.agent.stop
    expect(status.exitstatus).to eq(2), run.said
    expect(run.report['transaction_completed']).to be(true)
    expect(%w[stdout stderr].map { |name| File.read(File.join(run.dir, name)) }).to eq(%W[hello\n you\n])
  end

  it 'writes an event for each resource that Puppet reports on, and no secret' do
    run.manifest(<<~PUPPET).call
      file { '#{run.path('secret')}': ensure => file, content => Sensitive('hunter2'), show_diff => true }
      exec { '/bin/false': }
      -> notify { 'after': }
      package { 'x': provider => 'pacman' }
      notify { 'quiet': noop => true }
    PUPPET
    # Puppet 8 leaves unchanged resources out of the statuses, but the metrics count all resources.
    done = run.events('done').map { |event| event['resource'] }
    expect(done).to include(*run.report['resource_statuses'].keys), run.said
    total = run.report['metrics']['resources']['values'].assoc('total').last
    expect([done.length, done.uniq.length, run.events('total').map { |event| event['resources'] }]).to eq([total, total, [total]])
    by = run.events('done').to_h { |event| [event['resource'], event] }
    expect(by['Exec[/bin/false]'].slice('failed', 'skipped', 'changed')).to eq('failed' => true, 'skipped' => false, 'changed' => false)
    expect(by['Exec[/bin/false]']['message']).to match(/returned 1/)
    expect(by['Notify[after]'].slice('failed', 'skipped', 'message')).to eq(
      'failed' => false, 'skipped' => true, 'message' => 'dependency failed: Exec[/bin/false]'
    )
    expect(by['Notify[quiet]'].slice('noop', 'changed')).to eq('noop' => true, 'changed' => false)
    expect(by["File[#{run.path('secret')}]"].slice('changed', 'line')).to eq('changed' => true, 'line' => 1)
    expect(Dir[File.join(run.dir, '*.json*')].map { |file| File.read(file) }.join).not_to include('hunter2')
  end
end
