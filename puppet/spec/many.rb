# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path('../lib', __dir__))
require_relative 'support/real_run'

# The script starts many runs through one warm parent. Some runs are killed at a random moment, and facts are collected
# after some of the other runs. The script measures the cost for the parent (docs/benchmarks.md). ruby spec/many.rb
# [RUNS [KILLED [SEED]]]
runs, killed, seed = ARGV.map { |text| Integer(text) } + [300, 20, 1].drop(ARGV.length)
random = Random.new(seed)
victims = (10...runs).to_a.sample(killed, random: random)
parent = WarmParent.new(RealRun.environment)
machine = RealRun.new(parent: parent).manifest("notify { 'a': }\n")
memory = -> { parent.proc('status')[/VmRSS:\s+(\d+)/, 1].to_i }
rest = -> { Waiting.for(60, 'no child left') { parent.children.empty? } }
before = nil # the open files after ten runs
after = {}
bad = []
cut = 0 # runs that a kill has ended
span = nil # bytes that a run writes about its phases before it applies
began = Process.clock_gettime(Process::CLOCK_MONOTONIC)

# The kill comes after the run has written a certain number of bytes about its phases. The moment of the kill depends on
# progress and not on time.
def kill(run, pid, bytes)
  Waiting.for(60, 'the next phase') { !WarmParent.alive?(pid) || (File.size?(run.path("#{run.run}/phase.jsonl")) || 0) >= bytes }
  Process.kill('KILL', pid)
rescue Errno::ESRCH
  nil # the run had ended before
end

runs.times do |number|
  run = machine.again
  victim = victims.include?(number)
  run.call { |pid| kill(run, pid, random.rand(span)) if victim }
  span ||= File.read(run.path("#{run.run}/phase.jsonl")).index('"apply"')
  if victim
    cut += 1 unless run.ended?
  else
    bad << "run #{number + 1}: #{run.done}" unless run.done['exit'] == 2
    parent.collect(run.dir) if (number % 10) == 5
  end
  FileUtils.rm_rf(run.dir)
  FileUtils.rm_f(machine.path('var/state/agent_catalog_run.lock')) if victim
  after[number + 1] = memory.call
  next unless number == 9

  rest.call
  before = parent.descriptors
end
rest.call
left = (parent.descriptors.to_a - before.to_a).map(&:last)
ratio = after[runs].fdiv(after[10])
puts "runs #{runs}, killed #{cut} of #{killed}, seed #{seed}: #{(Process.clock_gettime(Process::CLOCK_MONOTONIC) - began).round} s"
puts "memory after 10 #{after[10]} KiB, after #{runs} #{after[runs]} KiB: #{ratio.round(3)} ratio <=1.1 #{ratio <= 1.1 ? 'met' : 'missed'}"
puts "descriptors left #{left}, children left #{parent.children.length}, runs that ended otherwise #{bad.length}"
puts bad
parent.stop
machine.clean
exit(ratio <= 1.1 && bad.empty? && left.empty?)
