# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path('../lib', __dir__))
require_relative 'support/real_run'

# Runs in a row through one warm parent, some of them killed at a random moment: what it costs the parent (docs/benchmarks.md).
#   ruby spec/many.rb [RUNS [KILLED [SEED]]]
runs, killed, seed = ARGV.map { |text| Integer(text) } + [300, 20, 1].drop(ARGV.length)
random = Random.new(seed)
victims = (10...runs).to_a.sample(killed, random: random)
parent = WarmParent.new(RealRun.environment)
machine = RealRun.new(parent: parent).manifest("notify { 'a': }\n")
memory = -> { parent.proc('status')[/VmRSS:\s+(\d+)/, 1].to_i }
after = {}
bad = []
began = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# What kills a run waits until it has written so many bytes of what it does, which is a moment, but no time.
def kill(run, pid, bytes)
  Timeout.timeout(60) { Thread.pass while WarmParent.alive?(pid) && (File.size?(run.path("#{run.run}/phase.jsonl")) || 0) < bytes }
  Process.kill('KILL', pid)
rescue Errno::ESRCH
  nil # it has ended before
end

runs.times do |number|
  run = machine.again
  victim = victims.include?(number)
  run.call { |pid| kill(run, pid, random.rand(600)) if victim }
  bad << "run #{number + 1}: #{run.done}" unless victim || run.done['exit'] == 2
  FileUtils.rm_rf(run.dir)
  FileUtils.rm_f(machine.path('var/state/agent_catalog_run.lock')) if victim
  after[number + 1] = memory.call
end
Timeout.timeout(60) { Thread.pass until parent.children.empty? }
descriptors = parent.descriptors.reject { |_, name| name.start_with?('anon_inode') }
ratio = after[runs].fdiv(after[10])
puts "runs #{runs}, killed #{killed}, seed #{seed}: #{(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).round} s"
puts "memory after 10 #{after[10]} KiB, after #{runs} #{after[runs]} KiB: #{ratio.round(3)} ratio <=1.1 #{ratio <= 1.1 ? 'met' : 'missed'}"
puts "descriptors #{descriptors.values.tally}, children left #{parent.children.length}, runs that ended otherwise #{bad.length}"
puts bad
parent.stop
machine.clean
exit(ratio <= 1.1 && bad.empty? && descriptors.length <= 7)
