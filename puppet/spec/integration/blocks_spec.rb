# frozen_string_literal: true

require_relative '../spec_helper'

# Parts of a catalog wait for an answer while Puppet applies the rest.
RSpec.describe 'blocks that wait' do
  let(:run) { RealRun.new }

  after { run.clean }

  manifest = <<~PUPPET
    class rings {
      $object = tutti::with('swift/rings/object', 'swift/rings/account') |$object, $account| {
        notify { 'rings': message => "${object} ${account}" }
        "returned ${object}"
      }
      notify { 'object': message => String($object) }
      notify { 'beside': }
    }
    class devices {
      tutti::require_exports(Notify, 2) || {
        Notify <<| |>>
      }
    }
    class proxy {
      tutti::with('swift/rings/object') |$ring| { notify { 'proxy': message => $ring } }
    }
    include rings, devices, proxy
    notify { 'after rings': require => Class['rings'] }
    notify { 'after devices': require => Class['devices'] }
    notify { 'after proxy': require => Class['proxy'] }
    notify { 'aside': message => String(tutti::value('swift/rings/object', 'default')) }
  PUPPET

  def state
    run.events('done').group_by { |event| %w[failed skipped].find { |word| event[word] } || 'applied' }
       .transform_values { |events| events.map { |event| event['resource'] } }
  end

  def waits
    run.lines('phase.jsonl').select { |line| line['waits'] }
  end

  def export(title)
    { 'type' => 'Notify', 'title' => title, 'node' => 'm', 'tags' => ['notify'] }
  end

  it 'fail alone, what requires their class is skipped, and all of them are named' do
    run.agent.values = { 'swift/rings/account' => 'a' }
    run.agent.exports = [export('one'), export('mine').merge('node' => 'node.example.net')]
    run.manifest(manifest).call
    expect(run.status.exitstatus).to eq(6), run.said
    expect(state).to match(
      'failed' => contain_exactly('Tutti_waiting[swift/rings/object]', 'Tutti_waiting[2 Notify]', 'Tutti_waiting[swift/rings/object in Class[Proxy]]'),
      'skipped' => contain_exactly('Notify[after rings]', 'Notify[after devices]', 'Notify[after proxy]'),
      'applied' => include('Notify[aside]', 'Notify[beside]', 'Notify[object]')
    )
    failed = run.events('done').find { |event| event['resource'] == 'Tutti_waiting[swift/rings/object]' }
    expect(failed.slice('message', 'line')).to match('message' => %r{waits for value "swift/rings/object"}, 'line' => 2)
    site = run.path('code/production/manifests/site.pp')
    expect(waits.map { |line| line.slice('phase', 'waits') }).to eq(
      ['phase' => 'compile', 'waits' => [
        { 'query' => { 'kind' => 'value', 'key' => 'swift/rings/object' }, 'at' => { 'resource' => 'Class[Rings]', 'file' => site, 'line' => 2 } },
        { 'query' => { 'kind' => 'collect', 'type' => 'Notify' }, 'at' => { 'resource' => 'Class[Devices]', 'file' => site, 'line' => 10 } }
      ]]
    )
    expect(run.agent.asked('value').map { |request| request['key'] }).to eq(%w[swift/rings/object swift/rings/account])
  end

  it 'are part of the catalog once there is an answer, and give what they return' do
    run.agent.values = { 'swift/rings/account' => 'a', 'swift/rings/object' => 'o' }
    run.agent.exports = [export('one'), export('two')]
    run.manifest(manifest).call
    expect([run.status.exitstatus, state.keys, waits]).to eq([2, ['applied'], []]), run.said
    messages = run.events('done').to_h { |event| [event['resource'], event['message']] }
    expect(messages).to include('Notify[rings]' => /'o a'/, 'Notify[object]' => /'returned o'/, 'Notify[proxy]' => /'o'/, 'Notify[one]' => String,
                                'Notify[two]' => String, 'Notify[aside]' => /'o'/)
    expect(run.agent.asked('collect').map { |request| request.values_at('type', 'filter') }).to eq([['Notify', nil]])
  end

  it 'are not needed for what has a default: the catalog grows when the value comes' do
    grown = [{}, { 'db/host' => 'h' }].map do |values|
      other = RealRun.new
      other.agent.values = values
      other.manifest("$host = tutti::value('db/host', undef)\nnotify { 'always': }\nif $host { notify { 'with': message => $host } }\n").call
      [other.status.exitstatus, other.events('done').map { |event| event['resource'] }.grep(/Notify|Tutti/)]
    ensure
      other&.clean
    end
    expect(grown).to eq([[2, ['Notify[always]']], [2, ['Notify[always]', 'Notify[with]']]])
  end

  it 'are reported in a noop run, and do not fail it' do
    run.order['mode'] = 'noop'
    run.manifest(manifest).call
    expect([run.status.exitstatus, run.report['status'], run.report['noop_pending']]).to eq([0, 'unchanged', true]), run.said
    waiting = run.events('done').select { |event| event['resource'].start_with?('Tutti_waiting') }
    expect(waiting.map { |event| event.values_at('noop', 'failed') }.uniq).to eq([[true, false]])
  end

  it 'are not left out because nobody could answer: then the compile ends' do
    run.agent.on('collect') { { ok: false, code: 'unavailable', error: 'the server is away and Notify was never collected' } }
    run.manifest("tutti::require_exports('notify') || { Notify <<| |>> }\nnotify { 'a': }\n").call
    expect([run.status.exitstatus, run.phases.include?('gate'), waits]).to eq([1, false, []]), run.said
    expect(run.errors.map { |line| line['message'] }).to include(/the server is away.*\(unavailable\)/)
  end

  it 'say outside of a run of Tutti that nobody answers' do
    code = run.write('bare.pp', "tutti::with('k') |$v| { notify { 'v': } }\ntutti::require_exports('notify') || { notify { 'e': } }\nnotify { 'rest': }\n")
    output = IO.popen(['puppet', 'apply', '--confdir', run.path('conf'), '--vardir', run.path('var'), '--modulepath', run.path('module'),
                       '--color', 'false', '--detailed-exitcodes', code], err: %i[child out], &:read)
    expect($?.exitstatus).to eq(6), output # rubocop:disable Style/SpecialGlobalVars
    expect(output).to match(/waits for value "k": this Puppet was not started by Tutti/).and(match(/at least 1 of other nodes: this Puppet/))
    expect(output).to match(/rest/).and(match(/shared values are not read/))
  end
end
