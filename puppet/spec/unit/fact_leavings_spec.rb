# frozen_string_literal: true

require_relative '../spec_helper'
require 'tmpdir'
require 'puppet_x/tutti/fact_leavings'

RSpec.describe PuppetX::Tutti::FactLeavings do
  let(:dir) { File.realpath(Dir.mktmpdir('tutti')) }

  after { FileUtils.rm_rf(dir) }

  # Returns the result for a file in a separate process, because loaded code stays in a process.
  def said(text, name = 'm/lib/facter/mine.rb', how: 'load')
    path = File.join(dir, name)
    FileUtils.mkdir_p(File.dirname(path))
    File.write(path, text)
    IO.popen([RbConfig.ruby, '-W0', *$LOAD_PATH.flat_map { |one| ['-I', one] }, '-r', 'puppet_x/tutti/fact_leavings', '-e',
              "print PuppetX::Tutti::FactLeavings.of { #{how} '#{path}' }.first.inspect"], &:read)
  end

  {
    'OfFacts = 1' => 'm/lib/facter/mine.rb defines OfFacts',
    'module OfFacts; end' => 'm/lib/facter/mine.rb defines OfFacts',
    'class String; def shout; upcase; end; end' => 'm/lib/facter/mine.rb extends String',
    'module Comparable; X = 1; end' => 'm/lib/facter/mine.rb extends Comparable',
    'String.class_eval { def shout; upcase; end }' => 'm/lib/facter/mine.rb defines the method shout of String',
    'def Array.shout; end' => 'm/lib/facter/mine.rb defines the method shout of Array',
    'def Object.helper; end' => 'm/lib/facter/mine.rb defines the method helper of Object',
    '$of_facts = 1' => 'm/lib/facter/mine.rb has $of_facts',
    'Facter.add(:mine) { setcode { at_exit { } } }' => 'm/lib/facter/mine.rb has at_exit',
    'File.class_eval { def self.shout; end }' => 'm/lib/facter/mine.rb defines the method shout of File',
    'at_exit { }' => 'm/lib/facter/mine.rb has at_exit'
  }.each do |text, what|
    it "says so of `#{text}`" do
      expect(said(text)).to eq(what.inspect)
    end
  end

  it 'says nothing of a fact' do
    expect(said("Facter.add(:mine) { setcode { 'the end of $of_facts' } }\n")).to eq('nil')
  end

  it 'says nothing of what is inside of Facter' do
    expect(said("module Facter; module Mine; X = 1; end; end\nclass Facter::Mine::Y; end\n")).to eq('nil')
  end

  it 'says nothing of what is required: so does the run' do
    expect(said('OfFacts = 1', how: 'require')).to eq('nil')
  end

  it 'says nothing of a type that Puppet loads meanwhile' do
    expect(said('OfType = 1', 'm/lib/puppet/type/mine.rb')).to eq('nil')
  end
end
