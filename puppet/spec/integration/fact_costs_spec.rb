# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/own_facter'

# The examples check the cost of facts. An owner uses the cost to find out why Puppet is slow on a
# machine.
RSpec.describe 'what facts cost' do
  lib = 'code/production/modules/m/lib/facter'
  slow = <<~RUBY
    Facter.add(:slow) do
      setcode do
        began = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        nil until Process.clock_gettime(Process::CLOCK_MONOTONIC) - began > 0.3
        File.open('COUNT', 'a') { |file| file.write('x') }
        'yes'
      end
    end
  RUBY

  let(:facter) { OwnFacter.new }
  let(:environment) { RealRun.environment.merge('RUBYLIB' => facter.dir) }
  let(:run) do
    RealRun.new(parent: parent).manifest("notify { \"${facts['slow']} ${facts['asks']} ${facts['outside']}\": }\n").tap do |run|
      run.environment.replace(environment)
      run.puppet_conf("lastrunfile = #{run.path('summary.yaml')}\n") # no other run writes it
      run.write("#{lib}/slow.rb", slow.sub('COUNT', run.path('count')))
      run.write("#{lib}/asks.rb", "Facter.add(:asks) { setcode { Facter.value(:slow) } }\n")
      run.write('code/production/modules/m/facts.d/outside.sh', "#!/bin/sh\necho x >> #{run.path('asked')}\nsleep 0.3\necho outside=yes\n", mode: 0o755)
    end
  end

  after do
    run.clean
    @parent&.stop
    facter.clean
  end

  # Returns a warm parent that has read the present facter.conf.
  def parent
    @parent&.stop
    @parent = WarmParent.new(environment) if WarmParent.wanted?
  end

  # The next run. If the run is warm, it uses facts that were collected ahead.
  def following(run)
    @parent&.collect(run.dir)
    run.again.tap { |other| other.environment.replace(environment) }.call
  end

  def costs(run)
    JSON.parse(File.read(File.join(run.dir, 'fact-use.json')))
  end

  it 'is known by the names that facter.conf has for them, and is gone where these are in its ttls' do
    run.call
    times = { 'slow' => be_between(0.3, 30), 'outside.sh' => be_between(0.3, 30) }
    [run, following(run)].each do |run|
      expect(costs(run)).to include('slow' => hash_including(times), 'conf' => facter.conf), run.said
    end

    File.write(facter.conf, "facts : { ttls : [ { \"slow\" : 1 days }, { \"outside.sh\" : 1 days } ] }\n")
    fills = run.again(parent: parent).tap { |other| other.environment.replace(environment) }.call
    reads = following(fills)
    expect(reads.events('start').map { |event| event['resource'] }).to include('Notify[yes yes yes]'), reads.said
    expect(costs(reads)['slow'].keys & times.keys).to eq([])
    expect(%w[count asked].map { |name| File.read(run.path(name)).count('x') }).to eq([3, 3]), fills.said
  end
end
