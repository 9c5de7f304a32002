# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/mirror'
require_relative '../support/own_facter'
require_relative '../support/system_files'
require_relative '../support/twins'
require_relative '../support/warm_rows'

# The same code has equal results in a warm run and in a cold run.
RSpec.describe 'a run of a warm parent' do
  # Makes separate libraries that the examples may change.
  def make_site
    @facter = OwnFacter.new
    @site = @facter.dir
    @flag = @facter.path('../flag')
    File.write(@facter.path('shadow.rb'), "raise LoadError, 'not installed' unless File.exist?('#{@flag}')\n")
  end

  def parent
    @parent ||= WarmParent.new(RealRun.environment.merge('RUBYLIB' => @site))
  end

  def stop
    @parent&.stop
    @parent = nil
  end

  before(:all) { make_site }

  after(:all) do
    stop
    @facter.clean
  end

  WarmRows::ROWS.each do |row|
    it "is as cold: #{row.reason}" do
      twins = Twins.new(parent) do |machine|
        machine.order.merge!(row.order || {})
        instance_exec(machine, &row.setup)
      end
      if row.between
        twins.before
        instance_exec(twins.machine, &row.between)
      end
      if row.changed
        expect(parent.changed(twins.machine)).to match(row.changed)
        stop
        twins.parent = parent # the agent starts a new parent after this answer
      end
      twins.call
      expect(twins.why.to_s).to(row.cold ? match(row.cold) : eq(''), twins.warm.said)
      expect(twins.differences).to eq([])
      expect(twins.warm.said).to match(row.shows)
    ensure
      twins&.clean
    end
  end

  # These are files that a process reads only once. `of` contains the variable with the path, and the
  # code that reads the file.
  {
    'the time zone has changed' =>
      { name: 'TZ', prefix: ':', texts: %w[Etc/GMT-3 Asia/Tokyo].map { |zone| File.binread("/usr/share/zoneinfo/#{zone}") },
        body: "Time.now.strftime('%z')", shows: /'\+0900'/ },
    'an authority is trusted now' =>
      { name: 'SSL_CERT_FILE', texts: ['', SystemFiles::AUTHORITY], shows: /'true'/,
        body: 'OpenSSL::SSL::SSLContext::DEFAULT_CERT_STORE.verify(OpenSSL::X509::Certificate.new(File.read(ENV["SSL_CERT_FILE"])))' },
    'what openssl.cnf includes has changed' =>
      { name: 'OPENSSL_CONF', texts: [2, 3].map { |level| "[tls]\nCipherString = DEFAULT:@SECLEVEL=#{level}\n" }, shows: /'3'/,
        conf: SystemFiles::OPENSSL, body: 'OpenSSL::SSL::SSLContext.new.security_level' }
  }.each do |reason, of|
    it "is as cold: #{reason}" do
      files = SystemFiles.new(of[:conf])
      files.write(of[:texts].first)
      own = WarmParent.new(RealRun.environment.merge(of[:name] => "#{of[:prefix]}#{files.first}"))
      twins = Twins.new(own) { |machine| WarmRows.code(WarmRows.function('read', of[:body]), "notify { String(m::read()): }\n").call(machine) }
      files.write(of[:texts].last)
      expect(own.changed(twins.machine)).to eq(files.last)
      own.stop
      twins.parent = own = WarmParent.new(own.environment)
      twins.call
      expect([twins.why, twins.differences]).to eq([nil, []])
      expect(twins.warm.said).to match(of[:shows])
    ensure
      own.stop
      twins&.clean
      files.clean
    end
  end

  # Puppet's messages about directories that it creates differ between two runs.
  it 'is cold where puppet.conf asks for debug messages, as where the order does' do
    machine = RealRun.new(parent: parent).manifest("notify { 'a': }\n").puppet_conf("log_level = debug\n").call
    expect(machine.lines('phase.jsonl').map { |line| line['cold'] }.compact).to eq(['puppet.conf asks for debug messages']), machine.said
  ensure
    machine&.clean
  end

  it 'finds its process, Ruby, Puppet and its children as cold' do
    twins = Twins.new(parent) do |machine|
      machine.write("#{WarmRows::LIB}/puppet/functions/m/mirror.rb", Mirror::FUNCTION)
      command = machine.write('command', Mirror::COMMAND, mode: 0o755)
      machine.manifest("$dir = m::mirror()\nexec { \"#{command} ${dir}/command\": }\n")
    end
    twins.call
    expect(twins.differences).to eq([])
    warm, cold = twins.files('mirror').map { |text| JSON.parse(text) }
    expect(warm.delete('leads')).to eq([true, true]) # leader of a group and of a session; the agent starts a cold run in the same way
    cold.delete('leads')
    others = (warm.to_a - cold.to_a).map(&:first)
    expect(others.to_h { |key| [key, warm[key].to_a - cold[key].to_a] }).to eq(others.to_h { |key| [key, cold[key].to_a - warm[key].to_a] })
    expect(twins.files('command')).to all(eq(twins.files('command').first))
  ensure
    twins&.clean
  end

  it 'has random numbers of its own' do
    machine = RealRun.new(parent: parent)
    machine.write("#{WarmRows::LIB}/puppet/functions/m/any.rb", <<~RUBY)
      require 'securerandom'
      Puppet::Functions.create_function(:'m::any') { def any; "\#{rand(1 << 60)} \#{Random.rand(1 << 60)} \#{SecureRandom.hex}"; end }
    RUBY
    machine.manifest("notify { m::any(): }\n")
    said = Array.new(2) { machine.again.call.events('start').first['resource'].delete_prefix('Notify[').delete_suffix(']').split }
    expect(said.flatten.uniq.length).to eq(6)
  ensure
    machine&.clean
  end
end
