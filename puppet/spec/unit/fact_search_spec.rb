# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/fact_search'

RSpec.describe PuppetX::Tutti::FactSearch do
  describe PuppetX::Tutti::FactSearch::Names do
    # This class replaces Facter's own parser and counts its calls.
    let(:parser) do
      Class.new do
        attr_reader :asked

        def found_fact?(name, question)
          (@asked ||= []) << [name, question]
          name.match("^#{question}$")
        end
      end.prepend(described_class).new
    end

    it 'compares two names once, also such that are not alike' do
      2.times do
        expect(parser.found_fact?('os', 'os')).to be_truthy
        expect(parser.found_fact?('os', 'kernel')).to be_falsey
        expect(parser.found_fact?('kernel', 'kernel')).to be_truthy
      end
      expect(parser.asked).to eq([%w[os os], %w[os kernel], %w[kernel kernel]])
    end
  end

  describe PuppetX::Tutti::FactSearch::Configuration do
    # This class replaces Facter's own reader of facter.conf. This reader counts its calls, and
    # returns an empty result with a complaint for an invalid file.
    let(:reader) do
      Class.new do
        attr_accessor :conf, :times, :meanwhile

        def refresh_config(path)
          self.times = times.to_i + 1
          meanwhile&.call
          text = File.exist?(path) ? File.read(path) : ''
          self.conf = text.empty? ? {} : { 'facts' => { 'ttls' => [text] } }
        end
      end.prepend(described_class).new
    end
    let(:dir) { Dir.mktmpdir }
    let(:path) { File.join(dir, 'facter.conf') }

    after { FileUtils.rm_rf(dir) }

    # @return [Array] a value of the configuration, and how often the file was parsed
    def read(text, path = self.path)
      text ? File.write(path, text) : FileUtils.rm_f(path)
      before = reader.times.to_i
      reader.refresh_config(path)
      [reader.conf.dig('facts', 'ttls', 0), reader.times - before]
    end

    it 'is parsed again when it is another one' do
      other = File.join(dir, 'other.conf')
      expect([read('a'), read('a'), read('b'), read('b'), read('b', other), read('a')]).to eq([['a', 1], ['a', 0], ['b', 1], ['b', 0], ['b', 1], ['a', 1]])
    end

    it 'is always parsed where it is wrong, or is not there' do
      expect([read('a'), read(''), read(''), read(nil), read(nil), read('a')]).to eq([['a', 1], [nil, 1], [nil, 1], [nil, 1], [nil, 1], ['a', 0]])
    end

    ['include "other.conf"', '${HOME}', "\xff include"].each do |text|
      it "is always parsed where it may mean something else next time: #{text.inspect}" do
        expect([read(text), read(text)]).to eq([[text, 1], [text, 1]])
      end
    end

    it 'is parsed again when it was changed as it was read, and is as before' do
      File.write(path, 'a')
      reader.meanwhile = -> { File.write(path, 'b') }
      reader.refresh_config(path)
      reader.meanwhile = nil
      expect(read('a')).to eq(['a', 1])
    end

    it 'is nobody else\'s: who changes it changes it for himself' do
      read('a')
      reader.conf['facts'].clear
      expect(read('a')).to eq(['a', 0])
    end
  end

  # The code depends on these methods of Facter. If Facter renamed these methods, nothing would be
  # saved, and nobody would notice.
  it 'is where Facter looks' do
    expect(Facter::QueryParser.method(:found_fact?).arity).to eq(2)
    expect(Facter::ConfigReader.method(:refresh_config).arity).to eq(1)
  end
end
