# frozen_string_literal: true

# What functions of the module find in a compile: `run` is this process's run of Tutti. Compiles that fail say nothing.
RSpec.shared_context 'with a run of Tutti' do
  before(:all) do
    Puppet.initialize_settings(['--confdir', '/nonexistent', '--vardir', '/nonexistent']) unless Puppet.settings.global_defaults_initialized?
  end

  before do
    PuppetX::Tutti::Run.current = run
    allow(Puppet).to receive(:log_exception)
  end

  after { PuppetX::Tutti::Run.current = nil }
end
