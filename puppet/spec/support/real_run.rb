# frozen_string_literal: true

require 'fileutils'
require 'json'
require 'securerandom'
require 'tmpdir'
require_relative 'fake_agent'
require_relative 'warm_parent'

# A RealRun is one real run of the launcher with a fake agent, in a separate directory.
class RealRun
  MODULE = File.realpath('../..', __dir__)
  LAUNCHER = File.join(MODULE, 'bin', 'puppet-tutti')

  # Facter asks augparse for its version. Without augparse, Facter loads all lenses of Augeas, which takes three
  # quarters of a run's time.
  def self.environment
    @environment ||= begin
      bin = Dir.mktmpdir('tutti-bin')
      at_exit { FileUtils.rm_rf(bin) }
      File.write(File.join(bin, 'augparse'), "#!/bin/sh\necho augparse 1.14.1\n")
      File.chmod(0o755, File.join(bin, 'augparse'))
      { 'PATH' => "#{bin}:#{ENV.fetch('PATH')}" }
    end
  end

  attr_reader :root, :run, :agent, :order, :status, :environment

  # Returns the warm parent of runs that name no other parent. The parent is nil if the runs are cold.
  def self.parent
    WarmParent.shared(environment) if WarmParent.wanted?
  end

  # @param parent [WarmParent, nil] the parent of the run; the run is warm only while it has the parent's environment
  # @param root [String, nil] the root directory of another run on the same machine
  def initialize(node: 'node.example.net', mode: 'apply', parent: RealRun.parent, root: nil)
    @root = root || Dir.mktmpdir('tutti')
    @run = SecureRandom.uuid
    @parent = parent
    @environment = (parent&.environment || RealRun.environment).dup
    FileUtils.mkdir_p(dir)
    set_up unless root
    @agent = FakeAgent.new(path("#{run}/socket"), node: node, run: run, mode: mode)
    @order = { 'protocol' => 1, 'run' => run, 'node' => node, 'mode' => mode, 'environment' => 'production',
               'environmentpath' => path('code'), 'modulepath' => [path('module')], 'socket' => @agent.path,
               'lock_timeout' => 20, 'gate_timeout' => 20, 'tags' => [], 'skip_tags' => [], 'debug' => false,
               'confdir' => path('conf'), 'vardir' => path('var') }
  end

  # Returns another run on the same machine.
  def again(parent: @parent)
    RealRun.new(node: order['node'], parent: parent, root: root).tap do |other|
      other.order.merge!(order.reject { |name, _| %w[run socket].include?(name) })
      other.environment.replace(environment)
    end
  end

  def dir
    path(run)
  end

  def path(name)
    File.join(@root, name)
  end

  def write(name, content, mode: 0o644)
    FileUtils.mkdir_p(File.dirname(path(name)))
    File.write(path(name), content)
    File.chmod(mode, path(name))
    path(name)
  end

  def manifest(content)
    write('code/production/manifests/site.pp', content)
    self
  end

  # Appends to the site's puppet.conf.
  def puppet_conf(content)
    File.open(path('conf/puppet.conf'), 'a') { |file| file.write(content) }
    self
  end

  # Writes empty certificate files, because only their existence is checked.
  def certificates
    ['ssl/certs/ca.pem', "ssl/certs/#{order['node']}.pem"].each { |name| write(name, '') }
    self
  end

  # Takes the lock like another Puppet: with a living process whose name looks like Puppet.
  def hold_lock
    puppet = write('puppet-other', "#!/bin/sh\nread line\n", mode: 0o755)
    @reader, @writer = IO.pipe
    @holder = Process.spawn(puppet, in: @reader)
    write('var/state/agent_catalog_run.lock', @holder.to_s)
    self
  end

  def release_lock
    return unless @holder

    @writer.puts
    Process.wait(@holder)
    @holder = nil
  end

  # Returns a manifest whose only resource waits until the example releases the end of the run.
  def waiting_manifest
    File.mkfifo(path('hold'))
    @hold = File.open(path('hold'), 'r+').tap { |fifo| fifo.sync = true }
    command = write('wait', "#!/bin/sh\nexec 3<#{path('hold')}\necho yes > #{path('started')}\nread line <&3\n", mode: 0o755)
    manifest("exec { '#{command}': }\n")
  end

  # Ends the waiting resource.
  def release
    @hold.puts
  end

  # Sends a signal to the run as soon as the waiting resource has started.
  def end_by(signal)
    @signal = signal
    self
  end

  # Runs to the end, while the agent answers.
  def call
    agent.mode = order['mode']
    agent.start
    pid = spawn
    yield(pid) if block_given?
    interrupt(pid) if @signal
    @status = warm? ? WarmParent.wait(pid, path("#{run}/phase.jsonl")) : Process.wait2(pid).last
    self
  ensure
    @hold&.puts
    agent.stop
    release_lock
  end

  # Waits during the run until a file of the run matches.
  def wait_for(name, pattern)
    file = path(name)
    Waiting.for(60, -> { "#{name} matches #{pattern.inspect}\n#{said}" }) { File.exist?(file) && File.read(file).match?(pattern) }
  end

  def interrupt(pid)
    wait_for('started', /yes/)
    Process.kill(@signal, pid)
  end

  def spawn
    write("#{run}/run.json", JSON.generate(order))
    return @parent.run(dir).fetch('pid') if warm?

    Process.spawn(environment, RbConfig.ruby, LAUNCHER, dir,
                  in: File::NULL, out: [path("#{run}/stdout"), 'a'], err: [path("#{run}/stderr"), 'a'])
  end

  # Returns whether the run is warm. A warm run always has the environment of its parent.
  def warm?
    !@parent.nil? && environment == @parent.environment
  end

  def lines(name)
    File.readlines(path("#{run}/#{name}")).map { |line| JSON.parse(line) }
  end

  def phases
    lines('phase.jsonl').map { |line| line['phase'] }
  end

  def done
    lines('phase.jsonl').last
  end

  # Returns whether the run has reported its end.
  def ended?
    File.exist?(path("#{run}/phase.jsonl")) && done['phase'] == 'done'
  end

  def errors
    return [] unless File.exist?(File.join(dir, 'log.jsonl'))

    lines('log.jsonl').select { |line| line['level'] == 'err' }
  end

  def events(event = nil)
    lines('events.jsonl').select { |line| event.nil? || line['event'] == event }
  end

  def report
    JSON.parse(File.read(path("#{run}/report.json")))
  end

  def report?
    File.exist?(path("#{run}/report.json"))
  end

  # Returns all output of the run, for failure messages.
  def said
    %w[phase.jsonl log.jsonl stdout stderr].map do |name|
      file = path("#{run}/#{name}")
      "== #{name}\n#{File.exist?(file) ? File.read(file) : '(none)'}"
    end.join("\n")
  end

  def clean
    FileUtils.rm_rf(@root)
  end

  private

  def set_up
    FileUtils.mkdir_p([path('code/production/manifests'), path('module'), path('conf'), path('var')])
    File.symlink(MODULE, path('module/tutti'))
    write('conf/puppet.conf', "[main]\nlogdir = #{path('log')}\nrundir = #{path('run')}\nssldir = #{path('ssl')}\n")
  end
end
