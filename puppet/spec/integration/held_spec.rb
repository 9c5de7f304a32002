# frozen_string_literal: true

require_relative '../spec_helper'

# The server can hold the catalog of the last run for queries (ADR 0036).
RSpec.describe 'the catalog for queries' do
  let(:run) { RealRun.new }

  after { run.clean }

  def held
    JSON.parse(File.read(run.path("#{run.run}/catalog-held.json")))['resources']
  end

  def of(ref)
    held.find { |entry| "#{entry['type']}[#{entry['title']}]" == ref } or raise "no #{ref} in #{held}"
  end

  manifest = <<~PUPPET
    class app(Sensitive[String] $pw) {
      $later = Deferred('sprintf', ['canary-later'])
      notify { 'plain': message => "port ${1 + 2}", tag => 'web', require => Notify['first'] }
      notify { 'first': message => 3 }
      notify { 'secret': message => $pw }
      notify { 'unwrapped': message => "pw=${pw.unwrap}" }
      notify { 'deferred': message => $later }
      file { 'TEXT': content => 'canary-text', mode => '0600' }
      app::db { 'one': db_password => 'canary-name', options => { 'api_token' => 'canary-key' }, port => 5432, hosts => ['a', Notify['first']] }
      @notify { 'virtual': }
      @@notify { 'out': }
    }
    define app::db(String $db_password, Hash $options, Integer $port, Array $hosts) { }
    include app
  PUPPET

  it 'has places and clear parameters, and no secret' do
    run.agent.holds = true
    run.agent.sealed = { 'hiera/app::pw' => 'canary-hiera' }
    run.manifest(manifest.sub('TEXT', run.path('text'))).call
    expect(run.status.exitstatus).to eq(2), run.said
    expect(of('Notify[plain]')).to include('parameters' => { 'message' => 'port 3', 'name' => 'plain', 'require' => 'Notify[first]', 'tag' => 'web' },
                                           'file' => 'manifests/site.pp', 'line' => 3, 'tags' => include('web', 'app'))
    expect(of('App::Db[one]')).to include('parameters' => { 'hosts' => ['a', 'Notify[first]'], 'name' => 'one', 'port' => 5432 },
                                          'hidden' => %w[db_password options])
    hidden = { 'Notify[secret]' => %w[message], 'Notify[unwrapped]' => %w[message], 'Notify[deferred]' => %w[message],
               "File[#{run.path('text')}]" => %w[content], 'Class[App]' => %w[pw] }
    expect(hidden.keys.to_h { |ref| [ref, of(ref)['hidden']] }).to eq(hidden)
    expect(of('Notify[out]')['exported']).to be(true)
    expect(held.map { |entry| entry['title'] }).not_to include('virtual')
    expect(held.to_s).not_to include('canary-')
  end

  it 'is not written if the server does not ask for it' do
    run.manifest("notify { 'x': }").call
    expect(File.exist?(run.path("#{run.run}/catalog-held.json"))).to be(false)
  end

  %w[noop compile].each do |mode|
    it "is not written in mode #{mode}, because such a run may have other code" do
      other = RealRun.new(mode: mode)
      other.agent.holds = true
      other.manifest("notify { 'x': }").call
      expect(other.agent.asked('gate').length).to eq(1)
      expect(File.exist?(other.path("#{other.run}/catalog-held.json"))).to be(false)
    ensure
      other&.clean
    end
  end
end
