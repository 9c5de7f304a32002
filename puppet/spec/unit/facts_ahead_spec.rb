# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/facts_ahead'

RSpec.describe PuppetX::Tutti::FactsAhead::Facts do
  it 'is good while what it rests on is as it was, and not where that cannot be said' do
    plugins = { '/mine.rb' => [Time.at(0)] }
    facts = described_class.new
    facts.plugins = plugins
    facts.began = Time.now
    allow(PuppetX::Tutti::FactsAhead).to receive_messages(last_run: nil, plugins: plugins)
    expect(facts.valid?).to be(true)
    allow(PuppetX::Tutti::FactsAhead).to receive(:plugins).and_raise(Errno::ENOENT, '/mine.rb')
    expect(facts.valid?).to be(false)
  end
end
