# frozen_string_literal: true

# Records reports and logs of real runs, for the tests of code that reads reports:
#   ruby spec/record_reports.rb    writes testdata/reports/<Puppet version>/<run>.{json,jsonl}
# One node has three runs. `first` makes everything, `second` repairs a change by hand, and `noop` changes nothing.
# The secret is hunter2. The script fails if a written file contains the secret.
require 'puppet'
require_relative 'support/real_run'

TARGET = File.expand_path("../testdata/reports/#{Puppet.version}", __dir__)

def manifest(dir, text)
  <<~PUPPET
    class web {
      file { '#{dir}/motd': content => '#{text}', mode => '0644' }
      web::site { 'main': }
    }
    define web::site {
      file { '#{dir}/secret': content => Sensitive('hunter2 #{text}'), mode => '0600' }
    }
    include web
    exec { 'broken': command => '/bin/false' }
    -> notify { 'after': }
    exec { 'restarted': command => '/bin/false', refreshonly => true, subscribe => File['#{dir}/motd'] }
    file { '#{dir}/later': content => 'x', noop => true }
    file { '#{dir}/kept': ensure => directory }
    file { '#{dir}/watched': audit => [content] }
    notify { "\\u{1b}[31mred": }
  PUPPET
end

def portable(text, run)
  text.gsub(run.dir, "/srv/tutti/runs/#{run.run}").gsub(run.root, '/srv/tutti').gsub(RealRun::MODULE, '/srv/tutti/module/tutti')
end

def record(name, var, mode: 'apply', text: 'one')
  run = RealRun.new(mode: mode)
  run.order.merge!('mode' => mode, 'vardir' => "#{var}/var")
  run.manifest(manifest(var, text)).call
  { 'report.json' => 'json', 'log.jsonl' => 'jsonl' }.each do |from, to|
    content = portable(File.readlines(File.join(run.dir, from)).reject { |line| line.include?('"source":"Facter"') }.join, run)
    content = content.gsub(var, '/srv/web')
    raise "#{name}: the secret is in #{from}" if content.include?('hunter2')

    File.write(File.join(TARGET, "#{name}.#{to}"), content)
  end
  puts "#{name}: #{run.report['status']}, exit #{run.status.exitstatus}"
ensure
  run&.clean
end

FileUtils.mkdir_p(TARGET)
Dir.mktmpdir('tutti-reports') do |dir|
  File.write("#{dir}/watched", 'a')
  record('first', dir)
  File.write("#{dir}/motd", 'by hand')
  File.write("#{dir}/secret", 'by hand')
  File.write("#{dir}/watched", 'b')
  record('second', dir)
  record('noop', dir, mode: 'noop', text: 'two')
end
