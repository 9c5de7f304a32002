# frozen_string_literal: true

require_relative '../support/puppet_types'

RSpec.describe 'tutti::agent', type: :class do
  let(:pin) { "sha256:#{'a' * 64}" }
  let(:params) { { server: 'tutti.example.net:8150', pin: pin } }

  describe 'with a package' do
    it { is_expected.to compile.with_all_deps }
    it { is_expected.to contain_package('tutti').with_ensure('installed').that_comes_before('Exec[tutti join]') }
    it { is_expected.to contain_package('tutti').that_notifies('Exec[tutti agent: restart]') }

    it 'joins once, and an answer that the machine must wait is no failure' do
      is_expected.to contain_exec('tutti join').with(
        command: ['/usr/bin/tutti', 'join', '--puppet-certificate', '--server', 'tutti.example.net:8150', '--pin', pin],
        unless: 'test -e /var/lib/tutti/agent/identity/membership.json', returns: [0, 10]
      )
    end

    it 'starts the agent only on a machine that has joined' do
      is_expected.to contain_exec('tutti agent: start').with_onlyif('test -e /var/lib/tutti/agent/identity/membership.json')
    end
  end

  describe 'with a program from a URL' do
    let(:params) { { server: '[2001:db8::1]:8443', pin: pin, source: 'https://example.net/tutti', digest: 'b' * 64, code_keys: [pin] } }

    it { is_expected.to compile.with_all_deps }
    it { is_expected.not_to contain_package('tutti') }
    it { is_expected.to contain_file('/usr/local/bin/tutti').with(checksum: 'sha256', checksum_value: 'b' * 64, mode: '0755') }
    it { is_expected.to contain_file('/usr/local/bin/tutti').that_comes_before('Exec[tutti join]') }

    it('keeps no copy of an old program') { is_expected.to contain_file('/usr/local/bin/tutti').with_backup(false) }

    it 'trusts only the code keys that it is given' do
      is_expected.to contain_exec('tutti join').with_command(
        ['/usr/local/bin/tutti', 'join', '--puppet-certificate', '--server', '[2001:db8::1]:8443', '--pin', pin, '--trust-code-key', pin]
      )
    end
  end

  describe 'absent' do
    let(:params) { { server: 'tutti.example.net:8150', pin: pin, ensure: 'absent' } }

    it { is_expected.to compile.with_all_deps }
    it { is_expected.to contain_exec('tutti leave').with_command(['/usr/bin/tutti', 'leave', '--yes']) }
    it { is_expected.to contain_package('tutti').with_ensure('absent').that_requires('Exec[tutti leave]') }
    it { is_expected.not_to contain_exec('tutti join') }
  end

  describe 'absent, with a program from a URL' do
    let(:params) { { server: 'tutti.example.net:8150', pin: pin, ensure: 'absent', source: 'https://example.net/tutti', digest: 'b' * 64 } }

    it { is_expected.to contain_exec('tutti leave').with_command(['/usr/local/bin/tutti', 'leave', '--yes']) }
    it { is_expected.to contain_file('/usr/local/bin/tutti').with(ensure: 'absent', backup: false).that_requires('Exec[tutti leave]') }
    it { is_expected.not_to contain_package('tutti') }
  end

  {
    'a server without a port' => { server: 'tutti.example.net' },
    'an invalid pin' => { pin: 'sha256:abc' },
    'a source without its digest' => { source: 'https://example.net/tutti' },
    'a digest without its source' => { digest: 'b' * 64 }
  }.each do |what, wrong|
    describe what do
      let(:params) { { server: 'tutti.example.net:8150', pin: "sha256:#{'a' * 64}" }.merge(wrong) }

      it { is_expected.to compile.and_raise_error(/pattern|Pattern|both source and digest/) }
    end
  end
end
