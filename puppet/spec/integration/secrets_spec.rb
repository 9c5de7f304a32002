# frozen_string_literal: true

require 'open3'
require_relative '../spec_helper'

RSpec.describe 'secrets' do
  let(:run) { RealRun.new }

  after { run.clean }

  def content(file)
    File.read(run.path(file))
  end

  # Returns all files that exist after the run, except the .txt files, which must contain the secrets.
  def left
    Dir.glob("#{run.path('')}/**/*", File::FNM_DOTMATCH).select { |path| File.file?(path) && !path.end_with?('.txt') }
  end

  it 'are Sensitive, by value and by hiera, whatever their type' do
    run.agent.sealed = { 'db/pw' => 'canary-1', 'db/all' => { 'a' => ['canary-2'] }, 'hiera/app::pw' => 'canary-3' }
    run.manifest(<<~PUPPET).call
      class app(Sensitive[String] $pw) { file { '#{run.path('hiera.txt')}': content => $pw } }
      include app
      $pw = tutti::value('db/pw')
      $all = tutti::value('db/all', undef)
      unless $pw =~ Sensitive[String] and $all =~ Sensitive[Hash] { fail('in clear') }
      file { '#{run.path('value.txt')}': content => $pw }
      file { '#{run.path('all.txt')}': content => Sensitive($all.unwrap['a'][0]) }
      tutti::with('db/pw') |$it| { notify { "with ${it}": } }
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect([content('value.txt'), content('all.txt'), content('hiera.txt')]).to eq(%w[canary-1 canary-2 canary-3])
    expect(left.select { |path| File.binread(path).include?('canary-') }).to be_empty
    expect(run.said).not_to include('canary-')
    expect(run.agent.asked('hello').map { |hello| hello['opens'] }).to all(be(true))
  end

  it 'count in the digest of the catalog' do
    digests = %w[one two one].map do |secret|
      run = RealRun.new
      run.order['digest_key'] = 'c2VjcmV0'
      run.agent.sealed = { 'db/pw' => secret }
      run.manifest("notify { 'x': message => tutti::value('db/pw') }\n").call
      run.agent.asked('gate').first['catalog']['digest'].tap { run.clean }
    end
    expect(digests.uniq.length).to eq(2)
    expect(digests.first).to eq(digests.last)
  end

  it 'are waited for, where neither a default nor the hiera of the code stands in for them' do
    { "notify { 'x': message => tutti::value('db/pw') }\n" => %w[value db/pw],
      "notify { 'x': message => tutti::value('db/pw', 'none') }\n" => %w[value db/pw],
      "notify { 'x': message => lookup('pw', undef, undef, 'none') }\n" => %w[hiera pw] }.each do |manifest, (kind, key)|
      run = RealRun.new
      run.agent.awaited = { 'db/pw' => 'db/pw', 'hiera/pw' => 'shared/hiera/pw' }
      run.manifest(manifest).call
      waits = run.lines('phase.jsonl').flat_map { |line| line['waits'] || [] }
      expect(waits).to match([a_hash_including('query' => { 'kind' => kind, 'key' => key })]), run.said
      expect(run.said).to include('not sealed to it yet: an operator does it with `tutti secret reseal`')
      run.clean
    end
  end

  it 'leave out what needs them' do
    run.agent.awaited = { 'db/pw' => 'db/pw' }
    run.manifest("tutti::with('db/pw') |$it| { notify { 'never': } }\nnotify { 'rest': }\n").call
    expect(run.report['resource_statuses'].keys).to include('Notify[rest]').and(satisfy { |all| !all.include?('Notify[never]') })
  end

  it 'are published for whom they are, once, and never shown' do
    manifest = "tutti_value { 'db/pw': value => Sensitive('canary-4'), for => ['web', 'node:a'] }\n"
    run.manifest(manifest).call
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.agent.store).to eq('db/pw' => { 'value' => 'canary-4', 'for' => %w[group:web node:a] })
    expect(run.agent.asked('publish').first).to include('sensitive' => true)
    expect(left.select { |path| File.binread(path).include?('canary-') }.map { |path| File.basename(path) }).to eq(['site.pp'])
    expect(run.said).not_to include('canary-')
  end

  it 'that are published already change nothing' do
    run.agent.store['db/pw'] = { 'value' => 'x', 'for' => ['group:web'] }
    run.manifest("tutti_value { 'db/pw': value => Sensitive('x'), for => 'web' }\n").call
    expect([run.status.exitstatus, run.agent.asked('publish')]).to eq([0, []]), run.said
  end

  it 'are taken out of what a type says that refuses them' do
    run.agent.sealed = { 'db/pw' => "canary-7 'x'" }
    run.manifest(<<~PUPPET).call
      $pw = tutti::value('db/pw')
      exec { '/bin/true': environment => Sensitive([$pw.unwrap]) }
      file { '#{run.path('x.txt')}': mode => $pw }
    PUPPET
    expect(run.said).to include('[redacted]')
    expect(run.said).not_to include('canary-')
    expect(left.select { |path| File.binread(path).include?('canary-') }).to be_empty
  end

  it 'are taken out also if they are numbers' do
    run.agent.sealed = { 'db/pin' => 4_711_471_147 }
    run.manifest("file { '#{run.path('x.txt')}': mode => Sensitive(String(tutti::value('db/pin').unwrap)) }\n").call
    expect(run.said).to include('[redacted]')
    expect(run.said).not_to include('4711471147')
    expect(left.select { |path| File.binread(path).include?('4711471147') }).to be_empty
  end

  it 'are refused to what Puppet resolves late, which would show them' do
    run.agent.sealed = { 'db/pw' => 'canary-8' }
    run.write('code/production/lib/puppet/functions/pw.rb', <<~RUBY)
      Puppet::Functions.create_function(:pw) do
        dispatch(:pw) {}
        def pw
          Puppet::Pops::Types::PSensitiveType::Sensitive.new('canary-9')
        end
      end
    RUBY
    run.manifest(<<~PUPPET).call
      notify { 'late': message => Deferred('tutti::value', ['db/pw']) }
      tutti_value { 'db/own': value => Deferred('pw', []) }
    PUPPET
    expect(run.status.exitstatus).not_to eq(0)
    expect(run.agent.asked('publish')).to be_empty
    expect(run.said).not_to include('canary-')
    expect(left.select { |path| File.binread(path).include?('canary-') }.map { |path| File.basename(path) }).to eq(['pw.rb'])
  end

  it 'of hiera-eyaml are beside them, by the real gem' do
    keys = %w[private public].map { |half| "--pkcs7-#{half}-key=#{run.path("#{half}.pem")}" }
    eyaml(['createkeys', *keys])
    sealed = eyaml(['encrypt', *keys, '--output=string', '--string=canary-5'])
    run.write('code/production/data/common.yaml', <<~YAML)
      app::pw: #{sealed}
      lookup_options:
        app::pw: {convert_to: Sensitive}
    YAML
    run.write('code/production/hiera.yaml', <<~YAML)
      version: 5
      hierarchy:
        - name: Sealed in the code
          lookup_key: eyaml_lookup_key
          paths: [common.yaml]
          options: {pkcs7_private_key: #{run.path('private.pem')}, pkcs7_public_key: #{run.path('public.pem')}}
    YAML
    run.agent.sealed = { 'hiera/app::tutti' => 'canary-6' }
    run.manifest(<<~PUPPET).call
      class app(Sensitive[String] $pw, Sensitive[String] $tutti) {
        file { '#{run.path('eyaml.txt')}': content => $pw }
        file { '#{run.path('tutti.txt')}': content => $tutti }
      }
      include app
    PUPPET
    expect(run.status.exitstatus).to eq(2), run.said
    expect([content('eyaml.txt'), content('tutti.txt')]).to eq(%w[canary-5 canary-6])
    expect(left.select { |path| File.binread(path).include?('canary-') }).to be_empty
  end

  def eyaml(arguments)
    out, status = Open3.capture2e('eyaml', *arguments)
    raise out unless status.success?

    out.lines.last.to_s.strip
  end
end
