# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/own_facter'
require_relative '../support/twins'
require_relative '../support/warm_rows'

# The examples use providers that ask Facter repeatedly for facts that do not exist.
RSpec.describe 'a fact that a module asks for, of a warm parent' do
  let(:facter) { OwnFacter.new }
  let(:parent) { WarmParent.new(RealRun.environment.merge('RUBYLIB' => facter.dir)) }

  before { File.write(facter.conf, "facts : { ttls : [ { \"late\" : 1 days } ] }\n") }

  after do
    parent.stop
    facter.clean
  end

  # Both runs call a function with the given code, and report the result of the function. In the code, `facts` is the
  # module's directory of facts.
  def twins(body)
    Twins.new(parent) do |machine|
      machine.write("#{WarmRows::LIB}/facter/mine.rb", WarmRows.fact('mine', "'one'"))
      name, text = WarmRows.function('ask', "facts = '#{machine.path(WarmRows::LIB)}/facter'\n#{body}").first
      machine.write(name, text)
      machine.manifest("notify { String(m::ask()): }\n")
    end.call
  end

  it 'is found once it is there, and not before' do
    runs = twins(<<~RUBY)
      before = Array.new(3) { Facter.value('late') }
      File.write("\#{facts}/late.rb", "Facter.add(:late) { setcode { 'here' } }")
      after = [Facter.value('late'), Facter.value('later'), Facter.value('mine')]
      File.delete("\#{facts}/late.rb")
      (before + after).inspect
    RUBY
    expect(runs.why.to_s).to eq(''), runs.said
    expect(runs.differences).to eq([])
    expect(runs.warm.said).to include('[nil, nil, nil, \\"here\\", nil, \\"one\\"]')
  ensure
    runs&.clean
  end

  it 'has facter.conf parsed no more than once' do
    runs = twins(<<~RUBY)
      $parsed = 0
      Hocon.singleton_class.prepend(Module.new { def load(*); super.tap { $parsed += 1 }; end })
      Array.new(5) { Facter.value('late') }
      $parsed
    RUBY
    expect(runs.warm.events('done').map { |event| event['message'] }.grep(/as '[01]'/).length).to eq(1), runs.warm.said
    expect(runs.cold.events('done').map { |event| event['message'] }.grep(/as '[01]'/).length).to eq(0), runs.cold.said
  ensure
    runs&.clean
  end

  it 'has Facter complain of its configuration as often, while that is wrong' do
    runs = twins(<<~RUBY)
      right = File.read('#{facter.conf}')
      Array.new(2) { Facter.value('late') }
      File.write('#{facter.conf}', 'facts : {')
      Array.new(2) { Facter.value('late') }
      File.write('#{facter.conf}', right)
      Facter.value('late').inspect
    RUBY
    expect(runs.why.to_s).to eq(''), runs.said
    expect(runs.differences).to eq([])
    expect(runs.warm.said.scan(/failed to read config file/).length).to eq(2)
  ensure
    runs&.clean
  end
end
