# frozen_string_literal: true

require_relative '../spec_helper'
require 'facter'
require 'puppet_x/tutti/fact_costs'

RSpec.describe PuppetX::Tutti::FactCosts do
  # Each reading of the clock is one second later than the reading before.
  before { allow(described_class).to receive(:now).and_return(*(1..8)) }

  it 'counts what a fact asks for with the one that it asks, and not twice' do
    described_class.measure('asks') { described_class.measure('slow') { described_class.measure('slower') { nil } } }
    expect(described_class.record['slow']).to eq('asks' => 2, 'slow' => 2, 'slower' => 1)
  end

  it 'says what the fact said' do
    expect(described_class.measure('one') { 'value' }).to eq('value')
    described_class.record
  end
end
