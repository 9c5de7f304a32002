# frozen_string_literal: true

require_relative '../spec_helper'

# A signal to the process of a run ends the run. The run must then report that it was interrupted, and must not
# blame the catalog.
RSpec.describe 'a signal to a run' do
  let(:run) { RealRun.new }

  after { run.clean }

  def expect_said(name)
    expect([run.done['phase'], run.done['error']]).to eq(['done', { 'class' => 'SignalException', 'message' => "SIG#{name}" }]), run.said
  end

  def applies_until(name)
    run.waiting_manifest.end_by(name).call
    expect_said(name)
    expect(run.report['status']).to eq('failed'), run.said
  end

  it 'is said when it was INT, on which Puppet exits by itself' do
    applies_until('INT')
  end

  %w[TERM HUP USR1 USR2 QUIT].each do |name|
    it "is said when it was #{name}" do
      applies_until(name)
    end
  end

  %w[TERM INT USR1].each do |name|
    it "is said when it was #{name}, before anything is applied" do
      fifo = run.path('gate')
      File.mkfifo(fifo)
      run.manifest("notify { 'a': }\n").agent.on('gate') do
        File.write(run.path('started'), 'yes')
        File.read(fifo)
        { ok: true, verdict: 'go' }
      end
      run.end_by(name).call
      expect_said(name)
      expect(run.phases).not_to include('apply')
    end
  end
end
