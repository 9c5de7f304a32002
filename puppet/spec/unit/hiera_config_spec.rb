# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/hiera_config'

RSpec.describe PuppetX::Tutti::HieraConfig do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  let(:path) { File.join(@dir, 'hiera.yaml') }
  let(:tutti) { described_class::LEVEL }

  [
    { reason: 'no file', site: nil, levels: [{ 'name' => 'Common', 'path' => 'common.yaml', 'datadir' => 'data' }] },
    { reason: 'a file without hierarchy', site: 'version: 5', levels: [{ 'name' => 'Common', 'path' => 'common.yaml', 'datadir' => 'data' }] },
    { reason: 'an empty hierarchy', site: "version: 5\nhierarchy: []", levels: [] },
    { reason: 'a datadir of a level', site: "version: 5\nhierarchy: [{name: a, datadir: d, glob: '*.yaml'}]",
      levels: [{ 'name' => 'a', 'datadir' => 'd', 'glob' => '*.yaml' }] },
    { reason: 'a datadir of the defaults', site: "version: 5\ndefaults: {datadir: d}\nhierarchy: [{name: a}]", levels: [{ 'name' => 'a', 'datadir' => 'd' }] },
    { reason: 'an absolute datadir', site: "version: 5\nhierarchy: [{name: a, datadir: /d}]", levels: [{ 'name' => 'a', 'datadir' => '/d' }] },
    { reason: 'an interpolated datadir, which Puppet takes as relative', site: "version: 5\nhierarchy: [{name: a, datadir: '%{x}'}]",
      levels: [{ 'name' => 'a', 'datadir' => '%{x}' }] }
  ].each do |row|
    it "puts Tutti's level above #{row[:reason]}" do
      File.write(path, row[:site]) if row[:site]
      levels = row[:levels].map { |level| level.merge('datadir' => level['datadir'].start_with?('/') ? level['datadir'] : File.join(@dir, level['datadir'])) }
      merged = described_class.merged(path)
      expect(merged.values_at('version', 'hierarchy')).to eq([5, [tutti] + levels])
      expect(merged['defaults']).to eq('datadir' => 'd') if row[:site].to_s.include?('defaults')
    end
  end

  it 'takes a relative datadir as Puppet does where the file is in a directory that is a link' do
    FileUtils.mkdir_p(File.join(@dir, 'far/deep'))
    File.symlink('far/deep', File.join(@dir, 'conf'))
    site = File.join(@dir, 'conf/hiera.yaml')
    File.write(site, "version: 5\nhierarchy: [{name: a, datadir: ../data}]")
    expect(described_class.merged(site)['hierarchy'].last['datadir']).to eq(File.join(@dir, 'data'))
  end

  [
    { reason: 'version 3', site: "---\n:backends: yaml\n", error: /is not Hiera version 5/ },
    { reason: 'no YAML', site: '{', error: /cannot read the global Hiera file/ },
    { reason: 'a list', site: '[a]', error: /is not Hiera version 5/ }
  ].each do |row|
    it "refuses a file that is #{row[:reason]}" do
      File.write(path, row[:site])
      expect { described_class.merged(path) }.to raise_error(PuppetX::Tutti::Refused, row[:error])
    end
  end
end
