# frozen_string_literal: true

# This context is the environment of the module's functions in a compile. `run` is this process's run of Tutti.
# Failed compiles print nothing.
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
