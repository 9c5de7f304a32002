# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/cases'

# The files of a run alone show how the run has ended.
RSpec.describe 'the ending of a run' do
  Cases.all.each do |example|
    it "#{example.name}: #{example.reason}" do
      run = Cases.run(example)
      expect(run.phases.reject { |phase| phase == 'done' }.last).to eq(example.last), run.said
      expect(run.phases.include?('prerun')).to be(example.name == 'prerun')
      expect([run.status.exitstatus, run.done['exit']]).to eq([example.exit, example.exit]), run.said
      expect(run.report? ? run.report['status'] : nil).to eq(example.report), run.said
      expect(run.errors.map { |line| line['message'] }).to include(match(example.error)) if example.error
      if example.at
        where = run.errors.find { |line| line['message'].match?(example.error) && line['file'] }
        expect([File.basename(where['file']), where['line']]).to eq(example.at), run.said
      end
      expect(run.report.values_at('transaction_uuid', 'job_id')).to eq([run.run, run.run]) if run.report?
    ensure
      run&.clean
    end
  end
end
