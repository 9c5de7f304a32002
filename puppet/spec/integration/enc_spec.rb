# frozen_string_literal: true

require_relative '../spec_helper'

# If the order says so, the node gets the classes and parameters of the server's ENC, as with an ENC of Puppet itself.
RSpec.describe "the server's ENC" do
  let(:run) { RealRun.new.tap { |run| run.order['enc'] = true } }

  after { run.clean }

  def answering(classes: {}, parameters: {})
    run.agent.on('enc') { { ok: true, found: true, answer: { 'classes' => classes, 'parameters' => parameters }, degraded: false } }
    run.write('code/production/modules/role/manifests/web.pp', <<~PUPPET)
      class role::web($port = 80, $names = []) { notify { 'web': message => "${port} ${join($names, '+')} ${site}" } }
    PUPPET
    run.write('code/production/modules/role/manifests/plain.pp', "class role::plain { notify { 'plain': message => 'plain' } }\n")
  end

  def messages
    run.events('done').map { |event| event['message'] }.compact.grep(/defined 'message'/).map { |text| text[/as '(.*)'/, 1] }
  end

  it 'declares classes, with and without parameters, and sets variables at top scope' do
    answering(classes: { 'role::web' => { 'port' => 8080, 'names' => %w[a b] }, 'role::plain' => nil }, parameters: { 'site' => 'ber' })
    run.manifest("notify { 'top': message => \"${site} ${::site}\" }\n").call
    expect(messages).to contain_exactly('8080 a+b ber', 'plain', 'ber ber'), run.said
    expect(run.agent.asked('enc').length).to eq(1)
  end

  it 'comes before a fact of the same name, and leaves the facts alone' do
    answering(parameters: { 'site' => 'of the ENC' })
    run.environment['FACTER_site'] = 'of the node'
    run.manifest("notify { 'top': message => \"${site}, ${facts['site']}\" }\n").call
    expect(messages).to eq(['of the ENC, of the node']), run.said
  end

  it 'compiles for a node that needs no manifest' do
    answering(classes: { 'role::plain' => nil })
    run.write('code/bare/environment.conf', "modulepath = ../production/modules\n")
    run.order['environment'] = 'bare'
    run.call
    expect(messages).to eq(['plain']), run.said
  end

  it 'still needs a manifest where the ENC names no class' do
    answering
    run.write('code/bare/environment.conf', '')
    run.order['environment'] = 'bare'
    run.call
    expect([run.status.exitstatus, run.errors.last['message']]).to match([1, /the environment bare has no manifest/])
  end

  it 'ends the compile with a class that does not exist' do
    answering(classes: { 'role::gone' => nil })
    run.manifest("notify { 'x': }\n").call
    expect([run.status.exitstatus, run.errors.last['message']]).to match([1, /Could not find class (::)?role::gone/])
    expect(run.agent.asked('gate')).to be_empty
  end

  it 'waits without an answer, and applies nothing' do
    run.agent.on('enc') { { ok: true, found: false, degraded: false } }
    run.manifest("notify { 'x': }\n").call
    expect([run.status.exitstatus, run.errors.last['message']]).to match([1, /the ENC has not answered about this node/])
    expect(run.said).to match(/"waits":\[\{"query":\{"kind":"enc"\}/)
    expect(run.agent.asked('gate')).to be_empty
  end

  [{ reason: 'nobody can answer', answer: { ok: false, code: 'unavailable', error: 'nobody can answer' }, error: /nobody can answer \(unavailable\)/ },
   { reason: 'the answer is no hash', answer: { ok: true, found: true, answer: ['x'] }, error: /enc: the agent's answer has no answer .* but a Array/ },
   { reason: 'the answer does not say whether there is one', answer: { ok: true }, error: /enc: the agent's answer has no found/ }].each do |row|
    it "ends the compile if #{row[:reason]}" do
      run.agent.on('enc') { row[:answer] }
      run.manifest("notify { 'x': }\n").call
      expect([run.status.exitstatus, run.errors.last['message']]).to match([1, row[:error]])
      expect(run.agent.asked('gate')).to be_empty
    end
  end

  it 'decides alone, also where puppet.conf names another ENC' do
    answering(classes: { 'role::plain' => nil })
    enc = run.write('enc', "#!/bin/sh\nexit 4\n", mode: 0o755)
    run.puppet_conf("node_terminus = exec\nexternal_nodes = #{enc}\n").manifest("notify { 'x': message => 'x' }\n").call
    expect(messages).to contain_exactly('plain', 'x'), run.said
  end

  it 'is not asked if the order does not say so' do
    run.order.delete('enc')
    run.manifest("notify { 'x': message => 'x' }\n").call
    expect([messages, run.agent.asked('enc')]).to eq([['x'], []]), run.said
  end
end
