# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/journal'

RSpec.describe PuppetX::Tutti::Journal do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  let(:path) { File.join(@dir, 'x.jsonl') }

  it 'appends lines that begin with the time and leave out what is nil' do
    2.times { |n| described_class.new(path).write('phase' => 'settings', 'n' => n, 'none' => nil) }
    lines = File.readlines(path).map { |line| JSON.parse(line) }
    expect(lines.map { |line| line.reject { |name, _| name == 't' } }).to eq([{ 'phase' => 'settings', 'n' => 0 }, { 'phase' => 'settings', 'n' => 1 }])
    expect(lines.map { |line| line['t'] }).to all(match(/\A\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\z/))
    expect(File.stat(path).mode & 0o777).to eq(0o600)
  end

  it 'writes what is not valid UTF-8' do
    described_class.new(path).write('message' => "a\xFFb".dup.force_encoding('BINARY'), "k\xFF" => ["\xFE"])
    expect(JSON.parse(File.read(path))['message']).to eq("a\uFFFDb")
  end

  it 'never raises when it cannot write' do
    journal = described_class.new('/dev/full')
    expect { journal.write('phase' => 'apply') }.not_to raise_error
  end

  it 'replaces a file as a whole, for its owner only' do
    file = File.join(@dir, 'pid')
    File.write(file, 'before')
    described_class.replace(file, 'pid' => 1)
    expect([File.read(file), File.stat(file).mode & 0o777, Dir.children(@dir)]).to eq(['{"pid":1}', 0o600, ['pid']])
  end
end
