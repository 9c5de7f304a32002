# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/rich_data'

RSpec.describe PuppetX::Tutti::RichData do
  it 'keeps strings of the system strings, at any depth' do
    value = { 'ip'.b => ['192.0.2.1'.b, "\u00e4".b], 'plain' => 'x' }
    expect(described_class.encode(value)).to eq('ip' => ['192.0.2.1', "\u00e4"], 'plain' => 'x')
    expect(described_class.decode(described_class.encode('192.0.2.1'.b))).to eq('192.0.2.1')
  end

  it 'keeps bytes that are no text' do
    expect(described_class.encode("\xFF".b)).to eq('__ptype' => 'Binary', '__pvalue' => '/w==')
  end

  it 'makes the same objects of JSON whose keys have another order' do
    types = Puppet::Pops::Types::TypeFactory
    values = [Puppet::Resource.new('File', '/x'), [types.range(1, 2)], { 'r' => types.resource('Notify', 'y') }, types.host_class('a::b')]
    values.each do |value|
      data = described_class.encode(value)
      expect(described_class.encode(described_class.decode(turned(data)))).to eq(data)
    end
  end

  # Returns the data with the keys of all hashes in reverse order.
  def turned(data)
    case data
    when Hash then data.map { |key, value| [key, turned(value)] }.reverse.to_h
    when Array then data.map { |value| turned(value) }
    else data
    end
  end
end
