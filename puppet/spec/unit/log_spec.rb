# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/log'

RSpec.describe PuppetX::Tutti::Log do
  [
    { reason: 'a position of its own', options: { file: '/a.pp', line: 3, pos: 7, issue_code: 'X' }, message: 'boom',
      found: { 'file' => '/a.pp', 'line' => 3, 'pos' => 7, 'issue_code' => 'X' } },
    { reason: 'a position in its text', message: 'boom (file: /b c.pp, line: 4, column: 9) on node n',
      found: { 'file' => '/b c.pp', 'line' => 4, 'pos' => 9 } },
    { reason: 'a line in its text', message: 'boom (file: /b.pp, line: 4)', found: { 'file' => '/b.pp', 'line' => 4 } },
    { reason: 'both: its own counts', options: { file: '/a.pp', line: 3 }, message: 'boom (file: /b.pp, line: 4)', found: { 'file' => '/a.pp', 'line' => 3 } },
    { reason: 'none', message: 'boom', found: {} }
  ].each do |row|
    it "keeps #{row[:reason]}" do
      message = Puppet::Util::Log.new({ level: :err, message: row[:message], source: 'S' }.merge(row[:options] || {}))
      expect(described_class.fields(message)).to eq({ 'level' => 'err', 'message' => row[:message], 'source' => 'S' }.merge(row[:found]))
    end
  end
end
