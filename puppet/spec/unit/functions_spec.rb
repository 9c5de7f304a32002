# frozen_string_literal: true

require_relative '../support/puppet_types'
require 'puppet_x/tutti/run'

RSpec.describe 'tutti::value', type: :puppet_function do
  let(:run) { instance_double(PuppetX::Tutti::Run) }
  let(:answer) { PuppetX::Tutti::Run::Answer }

  after { PuppetX::Tutti::Run.current = nil }

  describe 'in a run' do
    before do
      PuppetX::Tutti::Run.current = run
      allow(run).to receive(:value) { |key, _at| answer.new(key == 'a/b', { 'x' => [1, nil, false] }) }
    end

    it('gives what is shared') { is_expected.to run_with('a/b').and_return('x' => [1, nil, false]) }
    it('prefers it to the default') { is_expected.to run_with('a/b', 7).and_return('x' => [1, nil, false]) }
    it('takes the default') { is_expected.to run_with('c', [1]).and_return([1]) }
    it('takes an undef default') { is_expected.to run_with('c', nil).and_return(nil) }
    it('fails without a default') { is_expected.to run_with('c').and_raise_error(Puppet::Error, /no value "c" \(nobody has published it\)/) }

    ['', '/a', 'a/', 'a//b', 'a b', 1].each do |key|
      it("refuses the key #{key.inspect}") { is_expected.to run_with(key).and_raise_error(ArgumentError, /Pattern|String/) }
    end
  end

  describe 'without a run' do
    before { allow(Puppet).to receive(:warning) }

    it('takes the default') { is_expected.to run_with('a/b', 7).and_return(7) }
    it('fails without a default') { is_expected.to run_with('a/b').and_raise_error(Puppet::Error, /not started by Tutti/) }
  end

  def run_with(*arguments)
    RSpec::Puppet::FunctionMatchers::Run.new.with_params(*arguments)
  end
end

RSpec.describe 'tutti::exports', type: :puppet_function do
  before { allow(Puppet).to receive(:warning) }

  it('lists nothing without a run, as a collector finds nothing') do
    is_expected.to run_with('notify', ['=', 'tag', 'x']).and_return([])
    expect(PuppetX::Tutti::Run.current).to be_nil
  end

  it('lists what the site has stored without a run') do
    scope_resource = Puppet::Parser::Resource.new('notify', 'a', scope: scope, parameters: [Puppet::Parser::Resource::Param.new(name: :message, value: 'm')])
    scope_resource.collector_id = 'other|Notify|a'
    allow(Puppet::Resource.indirection).to receive(:search).with('Notify', hash_including(filter: ['tag', '==', 'x'])).and_return([scope_resource])
    Puppet[:storeconfigs] = true
    is_expected.to run_with('notify', ['=', 'tag', 'x']).and_return(
      [{ 'type' => 'Notify', 'title' => 'a', 'parameters' => { 'message' => 'm' }, 'tags' => %w[a notify], 'certname' => 'other' }]
    )
  end

  it('refuses a resource') { is_expected.to run_with('File[x]').and_raise_error(ArgumentError, /Pattern/) }
  it('refuses an unknown filter') { is_expected.to run_with('notify', ['~', 'a', 'b']).and_raise_error(ArgumentError, /filter .*a list like/) }

  def run_with(*arguments)
    RSpec::Puppet::FunctionMatchers::Run.new.with_params(*arguments)
  end
end

RSpec.describe 'tutti::hiera' do
  # Calls the function in the same way as Hiera.
  def lookup(key, options = {})
    environment = Puppet::Node::Environment.create(:production, [RSpec.configuration.module_path])
    Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) do
      function = Puppet.lookup(:loaders).private_environment_loader.load(:function, 'tutti::hiera')
      context = Puppet::Pops::Lookup::Context.allocate
      allow(context).to receive(:not_found) { throw :no_such_key, :none }
      catch(:no_such_key) { function.class.dispatcher && function.lookup_key(key, options, context) }
    end
  end

  let(:keys) { [] }

  before do
    recorder = instance_double(PuppetX::Tutti::KeyRecorder)
    allow(recorder).to receive(:record) { |key| keys << key }
    allow(recorder).to receive(:position) { |key| { 'resource' => "Class[#{key}]" } }
    run = instance_double(PuppetX::Tutti::Run, hiera: { 'a' => nil, 'b' => { 'c' => 1 } }, keys: recorder)
    allow(run).to receive(:awaited) { |key| 'shared/hiera/pw' if key == 'pw' }
    allow(run).to receive(:closed) { |key| 'secret "x": it is not sealed to this key' if key == 'closed' }
    PuppetX::Tutti::Run.current = run
  end

  after { PuppetX::Tutti::Run.current = nil }

  it 'gives what the agent has, also when it is null, and nothing else' do
    expect([lookup('a'), lookup('b'), lookup('c')]).to eq([nil, { 'c' => 1 }, :none])
  end

  it 'records the key that Puppet does not record' do
    lookup('lookup_options')
    lookup('a')
    expect(keys).to eq(['lookup_options'])
  end

  it 'knows nothing without a run, and requires nothing' do
    PuppetX::Tutti::Run.current = nil
    expect(lookup('a', 'required' => ['.'])).to eq(:none)
  end

  it 'knows nothing in an application with the run mode of a Puppet Server (puppet lookup)' do
    PuppetX::Tutti::Run.current = nil
    allow(Puppet).to receive(:run_mode).and_return(Puppet::Util::RunMode[:server])
    expect(lookup('a')).to eq(:none)
  end

  it 'fails in a Puppet Server that compiles past Tutti; its hooks do not' do
    PuppetX::Tutti::Run.current = nil
    stub_const('Puppet::Server::Master', Class.new)
    expect { lookup('a') }.to raise_error(Puppet::Error, /compiles past Tutti: set storeconfigs = true/)
    expect(PuppetX::Tutti::Run.present).to be_nil
  end

  it 'requires what the level names, and nothing else' do
    options = { 'required' => ['^db::', 'x$'] }
    expect([lookup('a', options), lookup('web::db::', options), lookup('b', options)]).to eq([nil, :none, { 'c' => 1 }])
    %w[db::host the::x].each do |key|
      expect { lookup(key, options) }.to raise_error(PuppetX::Tutti::Unanswered, /the key "#{key}"/) { |e|
        expect(e.wait).to eq('query' => { 'kind' => 'hiera', 'key' => key }, 'at' => { 'resource' => "Class[#{key}]" })
      }
    end
  end

  it 'waits for a secret that is not sealed to the node yet' do
    expect { lookup('pw') }.to raise_error(PuppetX::Tutti::Unanswered, %r{the secret "shared/hiera/pw" .* `tutti secret reseal`}) { |e|
      expect(e.wait).to eq('query' => { 'kind' => 'hiera', 'key' => 'pw' }, 'at' => { 'resource' => 'Class[pw]' })
    }
  end

  it 'fails for a secret that the agent cannot open' do
    expect { lookup('closed') }.to raise_error(Puppet::Error, /secret "x": it is not sealed to this key/)
  end

  it 'never requires what Hiera itself asks for' do
    expect(lookup('lookup_options', 'required' => ['.'])).to eq(:none)
  end

  [
    { options: { 'require' => ['a'] }, error: /unknown options require/ },
    { options: { 'required' => 'a' }, error: /`required` is a list of regular expressions/ },
    { options: { 'required' => ['('] }, error: /`required`: .*unmatched/ }
  ].each do |row|
    it("refuses the options #{row[:options]}") { expect { lookup('c', row[:options]) }.to raise_error(ArgumentError, row[:error]) }
  end
end
