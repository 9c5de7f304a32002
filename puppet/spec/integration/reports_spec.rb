# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/cases'

# The examples check a run's report, and the other places to which the report goes.
RSpec.describe 'reports' do
  let(:run) { RealRun.new }
  let(:other) { RealRun.new }

  after { [run, other].each(&:clean) }

  def event(of, resource)
    of.report['resource_statuses'].fetch(resource)['events'].first
  end

  def stored(of)
    Dir[of.path('var/reports/node.example.net/*.yaml')].map { |file| File.read(file) }
  end

  it 'tells a corrective change from an intentional one' do
    motd = run.path('motd')
    run.manifest("file { '#{motd}': content => 'one' }\n").call
    expect(event(run, "File[#{motd}]")['corrective_change']).to be(false), run.said
    File.write(motd, 'by hand')
    other.order['vardir'] = run.path('var')
    other.manifest("file { '#{motd}': content => 'one' }\n").call
    expect(event(other, "File[#{motd}]")['corrective_change']).to be(true), other.said
    expect(other.report['corrective_change']).to be(true)
  end

  it 'calls no new value corrective' do
    run.manifest("tutti_value { 'node/x': value => 1 }\n").call
    other.order['vardir'] = run.path('var')
    other.manifest("tutti_value { 'node/x': value => 2 }\n").call
    expect(event(other, 'Tutti_value[node/x]').values_at('status', 'corrective_change')).to eq(['success', false]), other.said
  end

  it 'has no Sensitive value' do
    secret = run.path('secret')
    run.manifest("file { '#{secret}': content => Sensitive('hunter2') }\n").call
    expect(event(run, "File[#{secret}]").values_at('redacted', 'previous_value', 'desired_value')).to eq([true, '[redacted]', '[redacted]']), run.said
    files = Dir[File.join(run.dir, '*')].select { |file| File.file?(file) } + Dir[run.path('var/state/*')].select { |file| File.file?(file) }
    expect(files.select { |file| File.binread(file).include?('hunter2') }).to be_empty
  end

  it "leaves the site's report processors as they are: they get the report of the run, with its id" do
    run.puppet_conf("reports = store,spy\n")
    run.write('code/production/modules/spy/lib/puppet/reports/spy.rb', <<~RUBY)
      require 'puppet'
      Puppet::Reports.register_report(:spy) { def process; File.write('#{run.path('spied')}', "\#{transaction_uuid} \#{status}"); end }
    RUBY
    run.manifest(Cases::GOOD).call
    expect(stored(run)).to contain_exactly(match(/transaction_uuid: '?#{run.run}'?$/)), run.said
    expect(File.read(run.path('var/state/last_run_report.yaml'))).to include(run.run)
    expect(File.read(run.path('spied'))).to eq("#{run.run} changed"), run.said
  end

  it 'hands the report to nobody with report = false, and Tutti has it all the same' do
    run.puppet_conf("report = false\n")
    run.manifest(Cases::GOOD).call
    expect(stored(run)).to be_empty
    expect(File).not_to exist(run.path('var/state/last_run_report.yaml'))
    expect(run.report['status']).to eq('changed'), run.said
  end

  it 'is as good a run where the report processor fails' do
    run.puppet_conf("reports = http\nreporturl = http://127.0.0.1:1/reports\n")
    run.manifest(Cases::GOOD).call
    expect(run.status.exitstatus).to eq(2), run.said
    expect(run.report['transaction_uuid']).to eq(run.run)
    expect(run.errors.map { |line| line['message'] }).to include(/Report processor failed/)
  end
end
