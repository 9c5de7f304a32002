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
end
