# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/filter'

RSpec.describe PuppetX::Tutti::Filter do
  tag = ['tag', '==', 'Foo']
  title = ['title', '==', 'q']
  [
    { reason: 'no filter', infix: nil, normal: nil },
    { reason: 'a tag, in lower case', infix: tag, normal: ['=', 'tag', 'foo'] },
    { reason: 'a title, as it is written', infix: ['title', '==', 'Q'], normal: ['=', 'title', 'Q'] },
    { reason: 'a parameter that is not', infix: ['message', '!=', 1], normal: ['!=', 'message', 1] },
    { reason: 'a missing parameter', infix: ['message', '==', nil], normal: ['=', 'message', nil] },
    { reason: 'a boolean', infix: ['enable', '==', true], normal: ['=', 'enable', true] },
    { reason: 'a reference', infix: ['require', '==', Puppet::Resource.new('File', '/x')],
      normal: ['=', 'require', { '__ptype' => 'Pcore::ResourceType', 'type_name' => 'File', 'title' => '/x' }] },
    { reason: 'both', infix: [tag, 'and', title], normal: ['and', ['=', 'tag', 'foo'], ['=', 'title', 'q']] },
    { reason: 'both, the other way round', infix: [title, 'and', tag], normal: ['and', ['=', 'tag', 'foo'], ['=', 'title', 'q']] },
    { reason: 'one of three', infix: [title, 'or', [tag, 'and', ['a', '!=', 'b']]],
      normal: ['or', ['=', 'title', 'q'], ['and', ['!=', 'a', 'b'], ['=', 'tag', 'foo']]] }
  ].each do |row|
    it "has a normal form of #{row[:reason]}" do
      environment = Puppet::Node::Environment.create(:production, [])
      Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) do
        expect(described_class.normal(row[:infix])).to eq(row[:normal])
      end
    end
  end

  it 'refuses an operator that it does not know' do
    expect { described_class.normal(['a', '<', 1]) }.to raise_error(ArgumentError, /unknown operator "<"/)
  end

  [
    { reason: 'a tag', prefix: ['=', 'tag', 'Foo'], infix: tag },
    { reason: 'a parameter of any type', prefix: ['!=', 'enable', true], infix: ['enable', '!=', true] },
    { reason: 'three', prefix: ['and', ['=', 'tag', 'Foo'], ['or', ['=', 'a', 1], ['=', 'b', nil]], ['=', 'title', 'q']],
      infix: [[tag, 'and', [['a', '==', 1], 'or', ['b', '==', nil]]], 'and', title] },
    { reason: 'one of one', prefix: ['or', ['=', 'title', 'q']], infix: title }
  ].each do |row|
    it("is #{row[:reason]} as data, too") { expect(described_class.infix(row[:prefix])).to eq(row[:infix]) }
  end

  [
    { reason: 'nothing', prefix: [], error: /a list like \['=', NAME, VALUE\] is needed/ },
    { reason: 'an operator of PuppetDB only', prefix: ['~', 'title', 'x'], error: /filter \["~", "title", "x"\]: a list like/ },
    { reason: 'a word', prefix: %w[and tag], error: /a list like/ },
    { reason: 'no operands', prefix: ['and'], error: /operands are needed/ },
    { reason: 'no value', prefix: ['=', 'a'], error: /a name and a value are needed/ },
    { reason: 'a path of PuppetDB', prefix: ['=', %w[parameter a], 1], error: /a name and a value are needed/ },
    { reason: 'a tag with a number', prefix: ['=', 'tag', 1], error: /tag is compared with text/ }
  ].each do |row|
    it("refuses #{row[:reason]}") { expect { described_class.infix(row[:prefix]) }.to raise_error(ArgumentError, row[:error]) }
  end
end
