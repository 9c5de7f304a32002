# frozen_string_literal: true

# Records the directories of real runs, one per case, for the tests of the agent:
#   ruby spec/record.rb            writes testdata/runs/<Puppet version>/<case>/
# Temporary paths become /srv/tutti. Facter's messages depend on the machine and stay in one case only.
require 'puppet'
require_relative 'support/cases'

TARGET = File.expand_path("../testdata/runs/#{Puppet.version}", __dir__)
FILES = %w[run.json pid phase.jsonl log.jsonl events.jsonl report.json stdout stderr].freeze

def portable(text, run)
  text.gsub(run.dir, "/srv/tutti/runs/#{run.run}").gsub(run.root, '/srv/tutti').gsub(RealRun::MODULE, '/srv/tutti/module/tutti')
end

def record(example)
  run = Cases.run(example)
  target = File.join(TARGET, example.name)
  FileUtils.rm_rf(target)
  FileUtils.mkdir_p(target)
  FILES.each do |name|
    source = File.join(run.dir, name)
    next unless File.size?(source)

    lines = File.readlines(source)
    lines.reject! { |line| line.include?('"source":"Facter"') } if name == 'log.jsonl' && example.name != 'changed'
    File.write(File.join(target, name), portable(lines.join, run))
  end
  puts "#{example.name}: exit #{run.status.exitstatus.inspect}, #{run.phases.join(' ')}"
ensure
  run&.clean
end

Cases.all.each { |example| record(example) if ARGV.empty? || ARGV.include?(example.name) }
