# frozen_string_literal: true

require_relative '../spec_helper'

RSpec.describe 'the groups of the node' do
  let(:run) { RealRun.new }

  after { run.clean }

  def messages
    run.events('done').map { |event| event['message'] }.compact.grep(/defined 'message'/).map { |text| text[/as '(.*)'/, 1] }
  end

  it 'come from the server, once in a run, with the place of the question' do
    run.agent.on('groups') { { ok: true, groups: %w[canary web], degraded: false } }
    run.manifest("notify { 'a': message => join(tutti::groups(), ', ') }\nnotify { 'b': message => join(tutti::groups([]), '+') }\n").call
    expect(messages).to contain_exactly('canary, web', 'canary+web'), run.said
    expect(run.agent.asked('groups').map { |request| request['at'].slice('resource', 'line') }).to eq([{ 'resource' => 'Class[main]', 'line' => 1 }])
  end

  it 'are a list without members for a node without groups, also where a default is given' do
    run.agent.on('groups') { { ok: true, groups: [], degraded: false } }
    run.manifest("notify { 'a': message => join(['none'] + tutti::groups(['default']), ',') }\n").call
    expect(messages).to eq(['none']), run.said
  end

  it 'cannot be said by a fact of the node: a fact with the name of the variable ends the compile' do
    run.agent.on('groups') { { ok: true, groups: ['web'], degraded: false } }
    run.environment['FACTER_tutti_groups'] = 'admin'
    run.manifest("$tutti_groups = tutti::groups()\nnotify { 'a': message => join($tutti_groups, ', ') }\n").call
    expect([run.status.exitstatus, run.said]).to match([1, /Cannot reassign variable '\$tutti_groups'/])
  end

  it 'choose the files of Hiera, by a variable at top scope' do
    run.agent.on('groups') { { ok: true, groups: %w[canary web], degraded: false } }
    run.write('code/production/hiera.yaml', <<~YAML)
      version: 5
      hierarchy:
        - {name: groups, mapped_paths: [site_groups, group, "groups/%{group}.yaml"]}
        - {name: all, path: all.yaml}
    YAML
    run.write('code/production/data/groups/web.yaml', "a::of_web: from web\na::both: from web\n")
    run.write('code/production/data/groups/canary.yaml', "a::both: from canary\n")
    run.write('code/production/data/groups/db.yaml', "a::of_all: from db\n")
    run.write('code/production/data/all.yaml', "a::of_web: from all\na::both: from all\na::of_all: from all\n")
    run.manifest(<<~PUPPET).call
      $site_groups = tutti::groups([])
      class a($of_web, $both, $of_all) { notify { 'a': message => "${of_web}, ${both}, ${of_all}" } }
      include a
    PUPPET
    expect(messages).to eq(['from web, from canary, from all']), run.said
  end

  it 'end the compile if nobody knows them, also where a default is given' do
    run.agent.on('groups') { { ok: false, code: 'unavailable', error: 'nobody can answer' } }
    run.manifest("$g = tutti::groups([])\n").call
    expect([run.status.exitstatus, run.said]).to match([1, /nobody can answer \(unavailable\)/])
  end

  [{ reason: 'an agent of an earlier release', answer: { ok: false, code: 'invalid', error: 'op "groups" is not known to this agent (protocol 1)' },
     error: /op .*groups.* is not known to this agent/ },
   { reason: 'an answer without a list', answer: { ok: true }, error: /groups: the agent's answer has no groups as it should be, but nothing/ },
   { reason: 'an answer with another list', answer: { ok: true, groups: ['web', 1] }, error: /has a Integer in place of a group/ }].each do |row|
    it "end the compile without an answer, also where a default is given: #{row[:reason]}" do
      run.agent.on('groups') { row[:answer] }
      run.manifest("$g = tutti::groups([])\n").call
      expect([run.status.exitstatus, run.said]).to match([1, row[:error]])
    end
  end

  %w[noop compile].each do |mode|
    it "are asked in mode #{mode}, too" do
      other = RealRun.new(mode: mode)
      other.agent.on('groups') { { ok: true, groups: ['web'], degraded: false } }
      other.manifest("notify { 'a': message => join(tutti::groups(), ', ') }\n").call
      expect(other.agent.asked('groups').length).to eq(1), other.said
      expect(other.agent.asked('gate').length).to eq(1), other.said
    ensure
      other.clean
    end
  end
end
