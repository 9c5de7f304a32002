# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/acting_facts'

RSpec.describe PuppetX::Tutti::ActingFacts do
  around { |example| Dir.mktmpdir { |dir| (@root = dir) && example.run } }

  facts = { 'os' => { 'family' => 'Debian' }, 'kernel' => 'Linux', 'role' => 'db', 'site' => 'north' }

  # Returns the facts that these files of modules may read while a catalog with the type exec is applied.
  define_method(:read) do |files|
    files.each do |file, text|
      path = File.join(@root, file)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
    catalog = Puppet::Resource::Catalog.new
    catalog.add_resource(Puppet::Resource.new('Exec', '/bin/true'))
    described_class.new([@root, File.join(@root, 'missing')], catalog).among(facts).keys
  end

  provider = 'm/lib/puppet/provider/exec/x.rb'
  [
    { reason: 'a provider that reads none', files: { provider => "# Facter.value(:role)\nputs 'x'" }, read: [] },
    { reason: 'a named fact', files: { provider => 'x = Facter.value(:role)' }, read: %w[role] },
    { reason: 'named facts in other forms', files: { provider => "x = Facter['role'].value\ny = Puppet.runtime[:facter].value('site')" }, read: %w[role site] },
    { reason: 'a fact of the operating system', files: { provider => 'x = Facter.value(:osfamily)' }, read: %w[os] },
    { reason: 'a fact whose name is not in the code', files: { provider => 'x = Facter.value(name)' }, read: facts.keys },
    { reason: 'a fact that the node does not have', files: { provider => 'x = Facter.value(:other)' }, read: facts.keys },
    { reason: 'a library of the same module', files: { provider => '', 'm/lib/puppet_x/m.rb' => "require 'facter'\nx = Facter.value('site')" },
      read: %w[site] },
    { reason: 'where a provider is suitable', files: { provider => "confine kernel: :linux\nconfine exists: '/x'\ndefaultfor :role => 'db'" },
      read: %w[kernel role] },
    { reason: 'a condition that is code', files: { provider => 'confine do' }, read: facts.keys },
    { reason: 'code of a compile', files: { provider => '', 'm/lib/puppet/functions/f.rb' => 'Facter.value(:role)', 'm/lib/facter/f.rb' => 'Facter.add(:f)' },
      read: [] },
    { reason: 'a module whose types the catalog does not have', files: { 'n/lib/puppet/type/other.rb' => 'Facter.value(:role)' }, read: [] },
    { reason: "Tutti's own module", files: { 'tutti/lib/puppet/provider/exec/x.rb' => 'Facter.value(:role)' }, read: [] }
  ].each do |row|
    it "are #{row[:read].empty? ? 'none' : row[:read].join(', ')} for #{row[:reason]}" do
      expect(read(row[:files])).to eq(row[:read])
    end
  end
end
