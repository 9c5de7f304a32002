# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/compiling'
require 'puppet_x/tutti/run'

# The examples check the functions with blocks, in the compile of a manifest.
RSpec.describe 'tutti::with and tutti::require_exports' do
  around { |example| Dir.mktmpdir { |dir| (@modules = dir) && File.symlink(RealRun::MODULE, File.join(dir, 'tutti')) && example.run } }

  let(:noted) { [] }
  let(:run) do
    waits = instance_double(PuppetX::Tutti::Waits)
    allow(waits).to receive(:note) { |wait| noted << wait['query'].values.join(' ') }
    instance_double(PuppetX::Tutti::Run, waits: waits, keys: PuppetX::Tutti::KeyRecorder.new(nil)).tap do |double|
      allow(double).to receive(:value) { |key, _| PuppetX::Tutti::Run::Answer.new(key.start_with?('has'), key.upcase) }
      allow(double).to receive(:collect) { |type, _, _| type == 'Swift::Ring_device' ? %w[one two] : [] }
    end
  end

  include_context 'with a run of Tutti'

  # Returns the titles of all notify and tutti_waiting resources in the catalog.
  def catalog(manifest)
    environment = Puppet::Node::Environment.create(:production, [@modules])
    Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) do
      Puppet[:code] = "define swift::ring_device() { }\n#{manifest}"
      node = Puppet::Node.new('n', environment: environment, facts: Puppet::Node::Facts.new('n', {}))
      Puppet::Parser::Compiler.compile(node).resources.map(&:ref).grep(/Notify|Tutti/)
    end
  end

  [
    { reason: 'a value that is there', code: "tutti::with('has') |$v| { notify { $v: } }", refs: ['Notify[HAS]'] },
    { reason: 'several, in their order', code: "tutti::with('has/b', 'has/a') |$b, $a| { notify { \"${b} ${a}\": } }", refs: ['Notify[HAS/B HAS/A]'] },
    { reason: 'the rest of the values', code: "tutti::with('has/a', 'has/b') |$a, *$rest| { notify { $rest: } }", refs: ['Notify[HAS/B]'] },
    { reason: 'what the block returns', code: "notify { tutti::with('has') |$v| { \"is ${v}\" }: }", refs: ['Notify[is HAS]'] },
    { reason: 'one that is not there', code: "tutti::with('no') |$v| { notify { 'x': } }", refs: ['Tutti_waiting[no]'], waits: ['value no'] },
    { reason: 'one of several that is not there', code: "tutti::with('has', 'no/b', 'no/a') |$x, $b, $a| { notify { 'x': } }",
      refs: ['Tutti_waiting[no/b]', 'Tutti_waiting[no/a]'], waits: ['value no/b', 'value no/a'] },
    { reason: 'undef in its stead', code: "notify { String(tutti::with('no') |$v| { 1 } =~ Undef): }",
      refs: ['Tutti_waiting[no]', 'Notify[true]'], waits: ['value no'] },
    { reason: 'the same twice in one class', code: "tutti::with('no') |$v| { }\ntutti::with('no') |$v| { }",
      refs: ['Tutti_waiting[no]'], waits: ['value no', 'value no'] },
    { reason: 'the same in two classes', code: "class a { tutti::with('no') |$v| { } }\nclass b { tutti::with('no') |$v| { } }\ninclude a, b",
      refs: ['Tutti_waiting[no]', 'Tutti_waiting[no in Class[B]]'], waits: ['value no', 'value no'] },
    { reason: 'in a define', code: "define d() { tutti::with('no') |$v| { } }\nd { ['x', 'y', 'z']: }",
      refs: ['Tutti_waiting[no]', 'Tutti_waiting[no in D[y]]', 'Tutti_waiting[no in D[z]]'], waits: ['value no'] * 3 },
    { reason: 'enough exports', code: "tutti::require_exports(Swift::Ring_device, 2) || { notify { 'x': } }", refs: ['Notify[x]'] },
    { reason: 'one export, if nothing is said', code: "tutti::require_exports('swift::ring_device') || { notify { 'x': } }", refs: ['Notify[x]'] },
    { reason: 'too few exports', code: "tutti::require_exports('Swift::ring_device', 3) || { notify { 'x': } }",
      refs: ['Tutti_waiting[3 Swift::Ring_device]'], waits: ['collect Swift::Ring_device'] },
    { reason: 'none', code: "tutti::require_exports(Notify) || { notify { 'x': } }", refs: ['Tutti_waiting[1 Notify]'], waits: ['collect Notify'] }
  ].each do |row|
    it "make of #{row[:reason]}: #{row[:refs].join(', ')}" do
      expect([catalog(row[:code]), noted]).to match([match_array(row[:refs]), row.fetch(:waits, [])])
    end
  end

  [
    { code: "tutti::with('a b') |$v| { }", error: /Pattern/ },
    { code: 'tutti::with() |$v| { }', error: /expects/ },
    { code: "tutti::with('has')", error: /expects a block/ },
    { code: "tutti::with('has', 'has/b') |$v| { }", error: /the block takes 1 values, of 2 keys/ },
    { code: "tutti::with('no') |$v, $w| { }", error: /the block takes 2 values, of 1 keys/ },
    { code: "tutti::require_exports('no type') || { }", error: /Pattern/ },
    { code: 'tutti::require_exports(Notify, 0) || { }', error: /Integer\[1/ },
    { code: 'tutti::require_exports(Notify) |$x| { }', error: /block/ },
    { code: "tutti::require_exports(Notify['a']) || { }", error: /not a resource type without a title/ }
  ].each do |row|
    it("refuse #{row[:code]}") { expect { catalog(row[:code]) }.to raise_error(Puppet::Error, row[:error]) }
  end
end
