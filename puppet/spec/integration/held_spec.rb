# frozen_string_literal: true

require 'base64'
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

  it 'has no secret in tags, references, numbers and other objects' do
    run.agent.holds = true
    run.agent.sealed = { 'pw' => 'Canary-pw', 'pin' => 71_829_345, 'ratio' => 3_141_592.6535 }
    run.manifest(<<~'PUPPET').call
      define vhost($a = undef, $b = undef, $c = undef, $list = []) { notify { "in-${title}": } }
      define db($root_pwd, $db_pass, $psk, $rootpw, $access_key, $content) { }
      class numbers($n) { }
      $pw = tutti::value('pw').unwrap
      $n = tutti::value('pin').unwrap
      vhost { "x-${pw}": }
      vhost { "Y-${pw.upcase}": }
      vhost { 'u': a => URI("http://u:${pw}@h/"), b => Binary.new($pw, '%s'), c => Regexp[$pw], list => [1, { 'n' => $n }] }
      vhost { 'v': a => $n, b => tutti::value('ratio').unwrap, c => Vhost['u'], list => [Vhost["x-${pw}"]] }
      notify { 'rel': require => Vhost["x-${pw}"], tag => $pw }
      db { 'd': root_pwd => 'Canary-1', db_pass => 'Canary-2', psk => 'Canary-3', rootpw => 'Canary-4', access_key => 'Canary-5', content => 'Canary-6' }
      class { 'numbers': n => $n }
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect(of('Vhost[v]')).to include('parameters' => { 'c' => 'Vhost[u]', 'name' => 'v' }, 'hidden' => %w[a b list])
    expect(of('Vhost[u]')).to include('hidden' => %w[a b c list])
    expect(of('Notify[rel]')).to include('hidden' => %w[require tag])
    expect(of('Vhost[x-[redacted]]')['hidden']).to eq(%w[name])
    expect(held.to_s.downcase).not_to match(/canary|#{Base64.strict_encode64('Canary-pw').downcase}|71829345|3141592/)
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
