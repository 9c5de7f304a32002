# frozen_string_literal: true

require_relative '../support/puppet_types'

RSpec.describe 'tutti::policy', type: :class do
  let(:rule) { { 'action' => 'allow', 'callers' => 'operator:ada ops', 'actions' => 'status enable', 'facts' => '*', 'classes' => '*' } }
  let(:params) { { policies: [rule], groups: { 'ops' => ['operator:ben', 'operator:eve'] } } }

  it { is_expected.to compile.with_all_deps }
  it { is_expected.to contain_file('/etc/tutti').with_ensure('directory') }

  it 'writes the rules after the default' do
    is_expected.to contain_file('/etc/tutti/policy').with_content(
      "# Puppet writes this file (class tutti::policy).\npolicy default deny\nallow\toperator:ada ops\tstatus enable\t*\t*\n"
    )
  end

  it('writes the groups of callers') { is_expected.to contain_file('/etc/tutti/policy.groups').with_content("ops operator:ben operator:eve\n") }

  describe 'lists in place of texts' do
    let(:params) { { policies: [{ 'action' => 'deny', 'callers' => %w[operator:ada operator:ben], 'actions' => %w[enable disable] }] } }

    it { is_expected.to contain_file('/etc/tutti/policy').with_content(/^deny\toperator:ada operator:ben\tenable disable\t\*\t\*$/) }
  end

  describe 'another file' do
    let(:params) { { policies: [rule], file: '/srv/tutti/policy' } }

    it { is_expected.to contain_file('/srv/tutti/policy') }
    it { is_expected.not_to contain_file('/etc/tutti') }
    it { is_expected.not_to contain_file('/srv/tutti') }
  end

  describe 'absent' do
    let(:params) { { ensure: 'absent' } }

    it { is_expected.to contain_file('/etc/tutti/policy').with_ensure('absent') }
    it { is_expected.to contain_file('/etc/tutti/policy.groups').with_ensure('absent') }
    it { is_expected.not_to contain_file('/etc/tutti') }
  end

  {
    'the comma list of Choria' => [{ 'actions' => 'disable,enable, status' }, /rule 1: actions: .* has commas.*write "disable enable status"/],
    'callers with commas' => [{ 'callers' => 'operator:ada,operator:ben' }, /rule 1: callers: .* has commas/],
    'a caller of Choria' => [{ 'callers' => 'puppet=rip.mcollective' }, /caller of Choria; write operator:NAME/],
    'a tab' => [{ 'facts' => "a=b\tc" }, /separate columns/],
    'a line end' => [{ 'classes' => "a\nallow" }, /separate columns/],
    'another word for the action' => [{ 'action' => 'permit' }, /Enum|allow/]
  }.each do |what, (wrong, says)|
    describe what do
      let(:params) { { policies: [rule.merge(wrong)] } }

      it { is_expected.to compile.and_raise_error(says) }
    end
  end
end
