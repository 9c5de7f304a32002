# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/leaves'

RSpec.describe PuppetX::Tutti::Leaves do
  before(:all) do
    Puppet.initialize_settings(['--confdir', '/nonexistent', '--vardir', '/nonexistent']) unless Puppet.settings.global_defaults_initialized?
  end

  # Yields the leaves of a manifest's catalog.
  def leaves(manifest)
    environment = Puppet::Node::Environment.create(:production, [])
    Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) do
      Puppet[:code] = "define d($h) { }\n#{manifest}"
      node = Puppet::Node.new('n', environment: environment, facts: Puppet::Node::Facts.new('n', {}))
      yield described_class.new(Puppet::Parser::Compiler.compile(node))
    end
  end

  [
    { reason: 'a parameter', deferred: true, manifest: "notify { 'a': message => Deferred('sprintf', ['x']) }" },
    { reason: 'a list in a hash', deferred: true, manifest: "d { 'a': h => { 'x' => ['y', Deferred('sprintf', ['x'])] } }" },
    { reason: 'a secret', deferred: true, manifest: "notify { 'a': message => Sensitive(Deferred('sprintf', ['x'])) }" },
    { reason: 'a secret in a list', deferred: true, manifest: "d { 'a': h => [Sensitive(Deferred('sprintf', ['x']))] }" },
    { reason: 'a virtual resource', deferred: false, manifest: "@notify { 'a': message => Deferred('sprintf', ['x']) }" },
    { reason: 'no parameter', deferred: false, manifest: "d { 'a': h => { 'x' => ['Deferred', 1] } }" }
  ].each do |row|
    it "know that #{row[:reason]} is #{'not ' unless row[:deferred]}resolved later" do
      leaves(row[:manifest]) { |found| expect(found.deferred?).to be(row[:deferred]) }
    end
  end

  it 'know all texts, titles too' do
    leaves("exec { '/code/m/one.sh': }\nd { '/code/m/two': h => {} }") do |found|
      expect(found.texts).to include('/code/m/one.sh', '/code/m/two')
    end
  end

  it 'know the sources beside invalid bytes' do
    leaves("file { '/one': source => 'puppet:///modules/m/1' }\nnotify { 'a': message => 'x' }") do |found|
      found.instance_variable_get(:@leaves) << "caf\xE9"
      expect(found.sources).to eq(['puppet:///modules/m/1'])
    end
  end

  it 'know all sources, whatever has them' do
    manifest = <<~PUPPET
      file { '/one': source => 'puppet:///modules/m/1' }
      file { '/two': source => ['puppet:///modules/m/2', '/local', 'Puppet:///modules/m/3'] }
      d { 'a': h => { 'content' => [Sensitive('puppet:///modules/m/4')] } }
      notify { 'about puppet:///modules/m/5': }
      @file { '/virtual': source => 'puppet:///modules/m/6' }
    PUPPET
    leaves(manifest) do |found|
      expect(found.sources).to contain_exactly('puppet:///modules/m/1', 'puppet:///modules/m/2', 'Puppet:///modules/m/3', 'puppet:///modules/m/4')
    end
  end
end
