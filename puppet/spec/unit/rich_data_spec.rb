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
end
