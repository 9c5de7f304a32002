# frozen_string_literal: true

require_relative '../spec_helper'

# A run owes a refresh if the run has triggered the refresh and Puppet has not done the refresh. Puppet forgets
# the refresh, because the next run finds that the change is already made.
RSpec.describe 'an owed refresh' do
  let(:run) { RealRun.new }

  after { run.clean }

  # Writes a manifest with a file, and with an exec that Puppet refreshes after a change of the file. The exec
  # counts its refreshes, and fails if the file `broken` exists.
  def manifest(machine, more = '', source: 'new', **parameters)
    count = machine.write('count', "#!/bin/sh\ntest ! -e #{machine.path('broken')} && echo once >> #{machine.path('counted')}\n", mode: 0o755)
    list = { 'refreshonly' => true, 'command' => "'#{count}'" }.merge(parameters.transform_keys(&:to_s))
    machine.manifest(<<~PUPPET)
      file { '#{machine.path('conf.txt')}': content => '#{source}' }
      ~> exec { 'count': #{list.map { |key, value| "#{key} => #{value}" }.join(', ')} }
      #{more}
    PUPPET
  end

  def counted(machine)
    File.exist?(machine.path('counted')) ? File.readlines(machine.path('counted')).size : 0
  end

  def events(machine, kind)
    machine.events(kind).map { |event| event['resource'] }
  end

  def refreshes(machine)
    %w[change refreshed dropped].to_h { |kind| [kind.to_sym, events(machine, kind)] }
  end

  # Starts another run on the same machine. The agent tells this run which refreshes are owed.
  def again(owed, **order)
    run.again.tap do |other|
      other.order.merge!({ 'owed' => owed, 'tags' => [] }.merge(order.transform_keys(&:to_s)))
      other.call
    end
  end

  it 'is said before the change, and is none once it was done' do
    manifest(run).call
    file = "File[#{run.path('conf.txt')}]"
    expect(refreshes(run)).to eq(change: [file], refreshed: ['Exec[count]'], dropped: []), run.said
    order = run.events.map { |event| event.values_at('event', 'resource') }
    expect(order.index(['change', file])).to be_between(order.index(['start', file]), order.index(['done', file])).exclusive
    expect(run.events('change').first['notifies']).to eq(['Exec[count]'])
    expect(counted(run)).to eq(1)
  end

  it 'is repeated though no event came, until it was done' do
    run.write('broken', '')
    manifest(run).call
    expect([run.report['status'], refreshes(run)[:refreshed]]).to eq(['failed', []]), run.said
    failing = again(['Exec[count]'])
    expect([failing.report['status'], refreshes(failing)]).to eq(['failed', { change: [], refreshed: [], dropped: [] }]), failing.said
    File.delete(run.path('broken'))
    paying = again(['Exec[count]'])
    expect([paying.report['status'], refreshes(paying)[:refreshed], counted(run)]).to eq(['changed', ['Exec[count]'], 1]), paying.said
    clean = again([])
    expect([clean.report['status'], counted(run)]).to eq(['unchanged', 1]), clean.said
  end

  it 'is owed where a dependency failed, and where tags leave it out' do
    more = "exec { '/bin/false': before => Exec['count'], unless => '/usr/bin/test -e #{run.path('mended')}' }\n"
    manifest(run, more).call
    expect([refreshes(run)[:change].size, refreshes(run)[:refreshed]]).to eq([1, []]), run.said
    still = again(['Exec[count]'])
    expect([refreshes(still)[:refreshed], counted(run)]).to eq([[], 0]), still.said
    run.write('mended', '')
    tagged = again(['Exec[count]'], tags: ['file'])
    expect([refreshes(tagged), counted(run)]).to eq([{ change: [], refreshed: [], dropped: [] }, 0]), tagged.said
    expect([refreshes(again(['Exec[count]']))[:refreshed], counted(run)]).to eq([['Exec[count]'], 1])
  end

  it 'is dropped by a catalog without the resource, and where the code forbids to change it' do
    manifest(run, noop: true).call
    expect(run.events('change')).to eq([]), run.said
    other = again(['Exec[count]', 'Exec[gone]', "File[#{run.path('conf.txt')}]"])
    expect(refreshes(other)[:dropped]).to contain_exactly('Exec[gone]', 'Exec[count]', "File[#{run.path('conf.txt')}]"), other.said
    expect(counted(run)).to eq(0)
  end

  it 'goes on to what is refreshed next' do
    last = run.write('last', "#!/bin/sh\ntest ! -e #{run.path('late')} && echo > #{run.path('reached')}\n", mode: 0o755)
    run.write('late', '')
    manifest(run, "exec { '#{last}': refreshonly => true, subscribe => Exec['count'] }\n").call
    expect(run.events('change').map { |event| event['notifies'] }).to eq([['Exec[count]'], ["Exec[#{last}]"]]), run.said
    expect([refreshes(run)[:refreshed], File.exist?(run.path('reached'))]).to eq([['Exec[count]'], false])
    File.delete(run.path('late'))
    expect([refreshes(again(["Exec[#{last}]"]))[:refreshed], File.exist?(run.path('reached')), counted(run)]).to eq([["Exec[#{last}]"], true, 1])
  end

  it 'is done when what owes it was started just now' do
    run.write('code/production/modules/m/lib/puppet/provider/service/pretend.rb', <<~RUBY)
      Puppet::Type.type(:service).provide(:pretend) do
        def status; File.exist?('#{run.path('started')}') ? :running : :stopped; end
        def start; File.write('#{run.path('started')}', ''); end
        def stop; File.delete('#{run.path('started')}'); end
        def restart; File.write('#{run.path('restarted')}', ''); end
      end
    RUBY
    run.manifest("file { '#{run.path('conf.txt')}': content => 'new' } ~> service { 'x': ensure => running, provider => pretend }\n")
    noop = again(['Service[x]'], mode: 'noop')
    expect(refreshes(noop)).to eq({ change: [], refreshed: [], dropped: [] }), noop.said
    run.call
    expect([refreshes(run)[:refreshed], File.exist?(run.path('restarted'))]).to eq([['Service[x]'], false]), run.said
    expect([refreshes(again(['Service[x]']))[:refreshed], File.exist?(run.path('restarted'))]).to eq([['Service[x]'], true])
  end

  it 'is kept where the run is killed between the change and the refresh' do
    hold = run.waiting_manifest && run.path('wait')
    manifest(run, "exec { '#{hold}': require => File['#{run.path('conf.txt')}'], before => Exec['count'] }\n").end_by('KILL').call
    expect(refreshes(run)).to eq(change: ["File[#{run.path('conf.txt')}]"], refreshed: [], dropped: []), run.said
  end

  it 'makes no change where it cannot be noted' do
    manifest(run, "file { '#{run.path('other.txt')}': content => 'free' }\n")
    FileUtils.mkdir_p(run.dir)
    File.symlink('/dev/full', File.join(run.dir, 'events.jsonl'))
    run.call
    expect([File.exist?(run.path('conf.txt')), File.exist?(run.path('other.txt'))]).to eq([false, true]), run.said
    expect(run.report['resource_statuses']["File[#{run.path('conf.txt')}]"]['events'].first['message'])
      .to match(/what it refreshes cannot be noted: No space left/)
  end
end
