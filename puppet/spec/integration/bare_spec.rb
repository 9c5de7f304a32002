# frozen_string_literal: true

require 'open3'
require_relative '../spec_helper'

# If a person starts Puppet by hand, Puppet works as if Tutti were not installed.
RSpec.describe 'Puppet without a run of Tutti' do
  let(:run) { RealRun.new }

  after { run.clean }

  def puppet(*arguments)
    Open3.capture2e(run.environment, 'puppet', *arguments, '--confdir', run.path('conf'), '--vardir', run.path('var'),
                    '--modulepath', run.path('module'), '--color=false')
  end

  def apply(manifest, *arguments)
    puppet('apply', run.write('bare.pp', manifest), '--detailed-exitcodes', *arguments)
  end

  it 'takes defaults, publishes nothing, and warns once' do
    output, status = apply(<<~PUPPET)
      notify { 'v': message => tutti::value('a', 'default a') }
      notify { 'w': message => tutti::value('b', 'default b') }
      tutti_value { 'c': value => 1 }
      tutti_value { 'd': source_file => '/does/not/exist' }
      tutti_value { 'e': ensure => absent }
    PUPPET
    expect(status.exitstatus).to eq(2), output
    expect(output).to include('default a', 'default b').and(match(/not started by Tutti/))
    expect(output.scan('not started by Tutti').length).to eq(1), output
    expect(output).not_to match(/Tutti_value.*(published|withdrawn)/)
  end

  it 'lists no exports, and warns once' do
    output, status = apply("notify { \"${tutti::exports(Notify)} ${tutti::exports(File, ['=', 'tag', 'x'])}\": }\n")
    expect([status.exitstatus, output]).to match([2, /\[\] \[\]/])
    expect(output.scan('not started by Tutti').length).to eq(1), output
  end

  it 'fails clearly where a value has no default' do
    output, status = apply("$v = tutti::value('a/b')\n")
    expect(status.exitstatus).to eq(1)
    expect(output).to match(%r{there is no value "a/b" \(this Puppet was not started by Tutti\).*line: 1})
  end

  it 'knows no groups: the default, or a clear failure' do
    output, status = apply("notify { join(tutti::groups(['d']), ','): }\n")
    expect([status.exitstatus, output]).to match([2, /defined 'message' as 'd'/])
    output, status = apply("$g = tutti::groups()\n")
    expect([status.exitstatus, output]).to match([1, /tutti::groups: this Puppet was not started by Tutti.*no default is given.*line: 1/])
  end

  it 'leaves collectors and exports as they are' do
    output, status = apply("@@notify { 'a': }\nNotify <<| |>>\nnotify { 'b': }\n")
    expect([status.exitstatus, output]).to match([2, /You cannot collect exported resources without storeconfigs being set/])
  end

  it 'knows no hiera key of Tutti' do
    run.write('conf/hiera.yaml', "version: 5\nhierarchy:\n- {name: t, lookup_key: tutti::hiera}\n")
    output, status = apply("notify { 'a': message => lookup('k', default_value => 'none') }\n")
    expect([status.exitstatus, output]).to match([2, /none/])
  end

  it 'refuses its own termini' do
    output, status = apply("notify { 'b': }\n", '--storeconfigs', '--storeconfigs_backend', 'tutti')
    expect([status.exitstatus, output]).to match([1, /in runs of Tutti only/])
  end

  it 'lets `puppet resource` read the type' do
    output, status = puppet('resource', 'file', '/')
    expect([status.exitstatus, output]).to match([0, /ensure +=> 'directory'/])
  end
end
