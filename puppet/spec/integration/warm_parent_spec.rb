# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/real_run'

# The examples check the parent itself: its state when it waits, and its end.
RSpec.describe 'a warm parent' do
  let(:parent) { WarmParent.new(RealRun.environment) }
  let(:run) { RealRun.new(parent: parent).manifest("notify { 'a': }\n") }

  after do
    run.clean
    parent.stop
  end

  # Waits until the parent has no more work: it is in `select`, and has no children.
  def rest(parent)
    Waiting.for(60, 'a parent that rests') { parent.children.empty? && parent.proc('stat').rpartition(')').last.split.first == 'S' }
  end

  def cpu(parent)
    parent.proc('stat').rpartition(')').last.split[11, 2].map(&:to_i).sum
  end

  it 'has one thread, no descriptor but its own, and no fact, handler or message' do
    probe = run.write('probe.rb', <<~RUBY)
      handlers = []
      Object.prepend(Module.new { define_method(:at_exit) { |&block| handlers << block.source_location; super(&block) } })
      require 'puppet_x/tutti/warm'
      PuppetX::Tutti::Warm.prepend(Module.new do
        define_method(:say) do |answer|
          facts = Facter::SessionCache.instance_variable_get(:@collection).to_a
          resolved = Facter::Resolvers.constants.map { |name| Facter::Resolvers.const_get(name) }.select { |one| one.respond_to?(:fact_list, true) }
          super(answer.merge('threads' => Thread.list.length, 'facts' => Facter.loadfacts.class.name && facts.length, 'handlers' => handlers,
                             'resolved' => resolved.reject { |one| (one.instance_variable_get(:@fact_list) || {}).empty? }.map(&:name),
                             'queued' => Puppet::Util::Log.instance_variable_get(:@queued).map(&:to_s)))
        end
      end)
    RUBY
    lib = File.join(RealRun::MODULE, 'lib')
    probed = WarmParent.new(RealRun.environment.merge('RUBYOPT' => "-I#{lib} -r#{probe}"))
    rest(probed)
    said = probed.ready
    probed.stop
    expect(said).to eq('ready' => true, 'threads' => 1, 'facts' => 0, 'handlers' => [], 'resolved' => [], 'queued' => [])
    rest(parent)
    expect(parent.descriptors.values.reject { |name| name.start_with?('anon_inode:') }.tally).to include('socket:[N]' => 1, 'pipe:[N]' => be >= 2)
  end

  it 'uses no CPU while a run goes on' do
    run.waiting_manifest
    run.call do
      run.wait_for('started', /yes/)
      before = cpu(parent)
      other = RealRun.new.manifest("notify { 'b': }\n") # this run is not a child of the parent; during the run some time passes
      other.call
      expect(cpu(parent)).to eq(before)
      run.release
      other.clean
    end
    expect(run.done['exit']).to eq(2), run.said
  end

  it 'leaves no child behind that has ended, and no descriptor' do
    rest(parent)
    before = parent.descriptors
    2.times { run.again.call }
    rest(parent)
    expect([parent.children, parent.descriptors]).to eq([[], before])
  end

  it 'ends when nobody can speak to it any more; its run goes on to its end' do
    run.waiting_manifest
    run.call do
      run.wait_for('started', /yes/)
      parent.stop
      expect(run.lines('phase.jsonl').last['phase']).to eq('apply')
      run.release
    end
    expect([run.done['phase'], run.done['exit']]).to eq(['done', 2]), run.said
  end

  it 'is killed while its run goes on, which ends as what it is' do
    run.waiting_manifest
    run.call do
      run.wait_for('started', /yes/)
      parent.kill
      run.release
    end
    expect([run.done['phase'], run.done['exit'], run.report['status']]).to eq(['done', 2, 'changed']), run.said
  end

  it 'is killed before it has read an order: none begins' do
    Process.kill('STOP', parent.pid)
    run.write("#{run.run}/run.json", JSON.generate(run.order))
    parent.order('do' => 'run', 'dir' => run.dir)
    parent.kill
    expect(parent.silent?).to be(true)
    expect(Dir.children(run.dir)).to eq(['run.json'])
  end

  # The parent opens pid.new after its fork. A FIFO without a reader blocks the parent at that
  # point.
  it 'is killed between the fork and the pid on disk: its child ends without a word' do
    run.write("#{run.run}/run.json", JSON.generate(run.order))
    File.mkfifo(File.join(run.dir, 'pid.new'))
    parent.order('do' => 'run', 'dir' => run.dir)
    child = Waiting.for(60, 'a child') { parent.children.first }
    parent.kill
    Waiting.for(60, 'the end of the child') { !WarmParent.alive?(child) }
    expect(Dir.children(run.dir).sort).to eq(%w[pid.new run.json])
    expect(parent.silent?).to be(true)
  end

  # A package is unpacked during the loading: one loaded file is old, and the next file is new.
  it 'makes no child if a file has changed between its loading and the end of loading' do
    load = "load File.join(RbConfig::CONFIG['rubylibdir'], 'pathname.rb')\n"
    loaded = run.write('site/pathname.rb', load)
    run.write('site/shadow.rb', "File.write('#{loaded}', \"\#{File.read('#{loaded}')}# newer\")\nraise LoadError, 'not installed'\n") # a feature requires it
    torn = WarmParent.new(RealRun.environment.merge('RUBYLIB' => run.path('site')))
    expect(File.read(loaded)).to end_with('# newer')
    expect(torn.changed(run)).to eq(loaded)
  ensure
    torn&.stop
  end

  # The agent has not read the answer, but a pid is on disk. Therefore the run continues.
  it 'is killed after the answer: the run goes on' do
    run.agent.start
    run.write("#{run.run}/run.json", JSON.generate(run.order))
    parent.order('do' => 'run', 'dir' => run.dir)
    run.wait_for("#{run.run}/phase.jsonl", /settings/)
    parent.kill
    pid = JSON.parse(File.read(File.join(run.dir, 'pid'))).fetch('pid')
    expect(WarmParent.wait(pid, File.join(run.dir, 'phase.jsonl')).exitstatus).to eq(2)
  ensure
    run.agent.stop
  end
end
