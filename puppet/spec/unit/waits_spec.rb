# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/compiling'
require 'puppet_x/tutti/client'
require 'puppet_x/tutti/order'
require 'puppet_x/tutti/run'

RSpec.describe PuppetX::Tutti::Waits do
  let(:run) { PuppetX::Tutti::Run.new(order, client) }
  let(:order) { instance_double(PuppetX::Tutti::Order, node: 'n') }
  let(:client) do
    instance_double(PuppetX::Tutti::Client).tap do |double|
      allow(double).to receive(:call) { |operation, *| { 'hiera' => { 'data' => { 'db::host' => 'h' } }, 'value' => { 'found' => false } }.fetch(operation) }
    end
  end

  include_context 'with a run of Tutti'

  # Returns the names of the questions for which a compile of this manifest waits. The hiera keys in
  # `asked` count as looked up.
  def ending(manifest, asked: [])
    run.hiera
    asked.each { |key| run.keys.record(key) }
    environment = Puppet::Node::Environment.create(:production, [])
    Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) do
      Puppet[:code] = manifest
      node = Puppet::Node.new('n', environment: environment, facts: Puppet::Node::Facts.new('n', {}))
      Puppet::Parser::Compiler.compile(node)
    end
    raise 'it compiled'
  rescue Puppet::Error => e
    names(e)
  end

  def names(error)
    run.waits.ending(error).map { |wait| wait['query'].values.join(' ') }
  end

  lookup = "lookup('%s')"
  [
    { reason: 'a key that nobody has', manifest: format(lookup, 'a::b'), asked: ['a::b'], waits: ['hiera a::b'] },
    { reason: 'a part of a key that nobody has', manifest: format(lookup, 'a.b'), asked: ['a'], waits: ['hiera a'] },
    { reason: 'one of several keys', manifest: "lookup(['a', 'b'])", asked: %w[a b], waits: ['hiera a', 'hiera b'] },
    { reason: 'a part of a key that Tutti has', manifest: format(lookup, 'db::host.port'), asked: ['db::host'], waits: [] },
    { reason: 'a key that this run did not ask', manifest: format(lookup, 'a'), asked: ['b'], waits: [] },
    { reason: 'a parameter of a class', manifest: "class db($port) { }\ninclude db", asked: ['db::port'], waits: ['hiera db::port'] },
    { reason: 'several of them', manifest: "class db($port, $x) { }\nclass { 'db': }", asked: ['db::port', 'db::x'], waits: ['hiera db::port', 'hiera db::x'] },
    { reason: 'a parameter and one that Tutti has', manifest: "class db($port, $host) { }\ninclude db",
      asked: ['db::port', 'db::host'], waits: [] },
    { reason: 'a parameter of a define', manifest: "define db($port) { }\ndb { 'x': }", asked: ['db::port'], waits: [] },
    { reason: 'a parameter of the wrong type, too', manifest: "class db($port, Integer $x) { }\nclass { 'db': x => 'a' }",
      asked: ['db::port', 'db::x'], waits: [] },
    { reason: 'somebody who only says so', manifest: "fail(\"it says: Function lookup() did not find a value for the name 'a'\")", asked: ['a'], waits: [] },
    { reason: 'a quoted part of what is no key', manifest: "lookup(\"a'..'b\")", asked: [], waits: [] },
    { reason: 'something else', manifest: "fail('no')", asked: ['a'], waits: [] }
  ].each do |row|
    it("#{row[:waits].empty? ? 'does not wait' : 'waits'} for #{row[:reason]}") { expect(ending(row[:manifest], asked: row[:asked])).to eq(row[:waits]) }
  end

  def unanswered
    PuppetX::Tutti::Unanswered.new('there is no value "k"', described_class.wait('value', 'k', {}))
  end

  # Returns the error that the block raises while Ruby handles another error.
  def instead
    raise unanswered
  rescue StandardError => e
    begin
      yield(e)
    rescue StandardError => e
      e
    end
  end

  it 'goes back to the question through what Puppet makes of it' do
    wrapped = instead { |e| raise Puppet::ParseError, "Evaluation Error: #{e.message} (file: /x, line: 3)" }
    expect([names(unanswered), names(wrapped)]).to eq([['value k'], ['value k']])
  end

  it 'does not go back to a question that was rescued' do
    expect(names(instead { |_| raise Puppet::Error, 'something else' })).to be_empty
  end

  it 'has what was left out, too, and each question once' do
    %w[a b a].each { |key| run.waits.note(described_class.wait('value', key, { 'line' => 1 })) }
    expect(names(unanswered)).to eq(['value a', 'value b', 'value k'])
    expect([run.waits.noted.length, names(Puppet::Error.new('x'))]).to eq([2, []])
  end
end
