# frozen_string_literal: true

require_relative '../spec_helper'

# The gate gets details about a catalog. With these details the server can prove that the same catalog would change
# nothing.
RSpec.describe "the gate's points" do
  digest = /\Asha256:\h{64}\z/
  # Returns the gate's data for code in a separate directory.
  define_method(:point) do |manifest, files, &prepare|
    run = RealRun.new(mode: 'compile')
    run.order['mode'] = 'compile'
    files.each { |name, content| run.write("code/production/modules/#{name}", content) }
    prepare&.call(run)
    run.manifest(manifest).call
    gate = run.agent.asked('gate').first or raise run.said
    expect(gate['facts_digest']).to match(digest)
    gate['catalog']
  ensure
    run&.clean
  end

  manifest = <<~PUPPET
    file { '/one': source => ['puppet:///modules/m/one', 'puppet:///modules/m/two'] }
    notify { 'role': message => $facts['site'] ? { undef => 'none', default => 'some' } }
    class m { }
    include m
  PUPPET
  files = { 'm/files/one' => '1', 'm/files/two' => '2', 'm/lib/puppet_x/m/api.rb' => '# 1', 'm/lib/facter/role.rb' => '# 1', 'm/facts.d/site.txt' => 'site=1' }

  base = nil
  before(:all) { base = point(manifest, files) }

  def differing(one, other)
    one.keys.reject { |name| one[name] == other[name] }
  end

  it 'are digests, and do not depend on where the code lies, on positions, times and ids' do
    expect(base).to match('digest' => digest, 'resources' => Integer, 'sources' => digest, 'lib' => digest, 'deferred' => false)
    moved = point("\n\n# moved\n#{manifest}", files) { |run| run.write('code/production/environment.conf', "config_version = /bin/date\n") }
    expect(differing(base, moved)).to be_empty
  end

  [
    { reason: 'the content of a source', file: 'm/files/two', content: 'x', counts: %w[sources] },
    { reason: 'a custom fact', file: 'm/lib/facter/role.rb', content: '# 2', counts: %w[lib] },
    { reason: 'an external fact', file: 'm/facts.d/site.txt', content: 'site=2', counts: %w[lib] }
  ].each do |row|
    it "count #{row[:reason]} as #{row[:counts].join(' and ')}" do
      expect(differing(base, point(manifest, files.merge(row[:file] => row[:content])))).to match_array(row[:counts])
    end
  end

  it 'count the facts that a type reads while Puppet applies the catalog, and no other facts' do
    acting = {
      'm/lib/facter/role.rb' => '%w[role site].each { |name| Facter.add(name) { setcode { File.read(File.join(Puppet[:confdir], name)) } } }',
      'm/lib/puppet/type/probe.rb' => 'Puppet::Type.newtype(:probe) { newparam(:name); newproperty(:text) { defaultto { Facter.value(:role) } } }'
    }
    of = lambda do |role, site|
      point("probe { 'x': }", acting) { |run| { 'role' => role, 'site' => site }.each { |name, value| run.write("conf/#{name}", value) } }
    end
    one = of.call('db', 'north')
    expect(differing(one, of.call('web', 'north'))).to eq(%w[lib])
    expect(differing(one, of.call('db', 'south'))).to eq([])
  end

  it 'count each invalid byte of a content' do
    of = ->(byte) { point("file { '/x': content => file('m/latin') }", files.merge('m/files/latin' => "caf#{byte}\n".b)) }
    expect(differing(of.call("\xE9"), of.call("\xE8"))).to eq(%w[digest])
  end

  it 'say what nobody can prove' do
    expect(point("file { '/x': source => 'puppet:///private/x', content => Deferred('sprintf', ['x']) }", files))
      .to include('sources' => nil, 'lib' => base['lib'], 'deferred' => true)
  end
end
