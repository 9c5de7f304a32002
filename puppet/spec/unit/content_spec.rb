# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/content'

RSpec.describe PuppetX::Tutti::Content do
  around { |example| Dir.mktmpdir { |dir| (@root = dir) && example.run } }

  before(:all) do
    Puppet.initialize_settings(['--confdir', '/nonexistent', '--vardir', '/nonexistent']) unless Puppet.settings.global_defaults_initialized?
  end

  files = {
    'm/files/one' => '1', 'm/files/two' => '2', "other/files/t w\u00f6" => '3', 'm/files/dir/sub/deep' => '4', 'm/files/unnamed' => '5',
    'm/lib/puppet_x/m/api.rb' => '1', 'm/lib/facter/role.rb' => '1', 'm/facts.d/site.txt' => 'a=1', 'm/templates/t.epp' => '1', 'm/manifests/init.pp' => ''
  }
  uris = ['puppet:///modules/m/one', 'puppet:///modules/m/two', "puppet:///modules/other/t w\u00f6", 'puppet:///modules/m/dir', 'puppet:///modules/m/later']

  # Returns the content of these modules in a separate directory.
  def content(name, files)
    modules = File.join(@root, name, 'modules')
    files.each do |file, text|
      path = File.join(modules, file)
      FileUtils.mkdir_p(File.dirname(path))
      File.write(path, text)
    end
    yield modules if block_given?
    described_class.new(Puppet::Node::Environment.create(:production, [modules]))
  end

  def digests(content, uris)
    { 'sources' => content.sources(uris), 'lib' => content.lib }
  end

  it 'is the same in another directory' do
    one, two = %w[one two].map { |name| digests(content(name, files), uris) }
    expect(one).to eq(two).and(match('sources' => /\Asha256:\h{64}\z/, 'lib' => /\Asha256:\h{64}\z/))
  end

  [
    { reason: 'a source', file: 'm/files/one', content: 'x', counts: 'sources' },
    { reason: 'the second alternative', file: 'm/files/two', content: 'x', counts: 'sources' },
    { reason: 'the source of a module that no class names', file: "other/files/t w\u00f6", content: 'x', counts: 'sources' },
    { reason: 'an alternative that is gone', file: 'm/files/two', content: nil, counts: 'sources' },
    { reason: 'an alternative that comes', file: 'm/files/later', content: '', counts: 'sources' },
    { reason: 'a file deep in a directory', file: 'm/files/dir/sub/deep', content: 'x', counts: 'sources' },
    { reason: 'one more file in a directory', file: 'm/files/dir/new', content: '', counts: 'sources' },
    { reason: 'a file that no source names', file: 'm/files/unnamed', content: 'x', counts: nil },
    { reason: 'a manifest', file: 'm/manifests/init.pp', content: 'x', counts: nil },
    { reason: 'a template', file: 'm/templates/t.epp', content: 'x', counts: nil },
    { reason: 'a library', file: 'm/lib/puppet_x/m/api.rb', content: 'x', counts: 'lib' },
    { reason: 'a provider of one more module', file: 'n/lib/puppet/provider/exec/x.rb', content: 'x', counts: 'lib' },
    { reason: 'a custom fact', file: 'm/lib/facter/role.rb', content: 'x', counts: 'lib' },
    { reason: 'an external fact', file: 'm/facts.d/site.txt', content: 'a=2', counts: 'lib' }
  ].each do |row|
    it "counts #{row[:reason]} as #{row[:counts] || 'nothing'}" do
      before = digests(content('one', files), uris)
      after = digests(content('two', files.merge(row[:file] => row[:content]).compact), uris)
      expect(before.keys.reject { |name| before[name] == after[name] }).to eq([row[:counts]].compact)
    end
  end

  it 'counts the mode of a file, and what a link leads to' do
    change = {
      'base' => proc {}, 'mode' => ->(dir) { File.chmod(0o755, File.join(dir, 'm/files/one')) },
      'link' => ->(dir) { FileUtils.ln_sf('two', File.join(dir, 'm/files/one')) },
      'elsewhere' => ->(dir) { FileUtils.ln_sf(File.join(@root, 'elsewhere'), File.join(dir, 'm/files/one')) }
    }
    found = %w[x y].flat_map do |text|
      File.write(File.join(@root, 'elsewhere'), text)
      change.map { |name, step| content(name + text, files, &step).sources(uris) }
    end
    expect(found.uniq.length).to eq(5)
  end

  it 'takes links in a circle and links to nowhere' do
    circle = content('circle', files) do |dir|
      FileUtils.ln_s('..', File.join(dir, 'm/files/dir/sub/up'))
      FileUtils.ln_s('nowhere', File.join(dir, 'm/files/dir/dangling'))
    end
    expect(circle.sources(uris)).to match(/\Asha256:/)
  end

  [
    { reason: 'a script by its path', text: ->(dir) { "/bin/sh #{dir}/m/files/one --now" }, counts: true },
    { reason: 'a module', text: ->(dir) { "#{dir}/m" }, counts: true },
    { reason: 'all modules', text: ->(dir) { "#{dir}/" }, counts: true },
    { reason: 'another module', text: ->(dir) { "#{dir}/other/files" }, counts: false },
    { reason: 'a module whose name begins so', text: ->(dir) { "#{dir}/mm/files/one" }, counts: false },
    { reason: 'another directory whose name begins so', text: ->(dir) { "#{dir}-old/m/files/one" }, counts: false },
    { reason: 'no path', text: ->(_) { 'm/files/one' }, counts: false }
  ].each do |row|
    it "#{row[:counts] ? 'counts' : 'does not count'} a file of a module where a catalog names #{row[:reason]}" do
      before, after = [files, files.merge('m/files/one' => 'x')].each_with_index.map do |all, index|
        content(index.to_s, all) { |dir| (@text = row[:text].call(dir)) }.sources([], [@text])
      end
      expect(before == after).to be(!row[:counts])
    end
  end

  it 'counts what a catalog names in the directory of the environment' do
    found = %w[x y].map do |text|
      one = content("env#{text}", files)
      root = File.join(@root, "env#{text}")
      FileUtils.mkdir_p(File.join(root, 'scripts'))
      File.write(File.join(root, 'scripts/a.sh'), text)
      conf = Puppet::Settings::EnvironmentConf.new(root, nil, [])
      allow(conf).to receive(:path_to_env).and_return(root)
      environment = Puppet::Node::Environment.create(:production, [File.join(root, 'modules')])
      allow(environment).to receive(:configuration).and_return(conf)
      [one.sources([]), *['scripts/a.sh', 'modules/m'].map { |named| described_class.new(environment).sources([], ["#{root}/#{named}"]) }]
    end
    expect(found[0][0]).to eq(found[1][0])
    expect(found[0][1]).not_to eq(found[1][1])
    expect(found[0][2]).to eq(found[1][2])
  end

  it 'has a digest for no sources' do
    expect(content('one', files).sources([])).to match(/\Asha256:/)
  end

  [
    { reason: 'another mount', uri: 'puppet:///private/x' },
    { reason: 'the mount of plugins', uri: 'puppet:///plugins/x' },
    { reason: 'another server', uri: 'puppet://files.example.net/modules/m/one' },
    { reason: 'no module', uri: 'puppet:///modules' },
    { reason: 'a way out of the module', uri: 'puppet:///modules/m/../../x' },
    { reason: 'no address', uri: 'puppet:://[' }
  ].each do |row|
    it "has no digest with #{row[:reason]} among the sources" do
      expect(content('one', files).sources(['puppet:///modules/m/one', row[:uri]])).to be_nil
    end
  end

  it 'has no digest where a file cannot be read' do
    digest = Digest::SHA256.method(:file)
    allow(Digest::SHA256).to receive(:file) { |path| path.match?(/one|api/) ? raise(Errno::EACCES) : digest.call(path) }
    expect(digests(content('one', files), uris)).to eq('sources' => nil, 'lib' => nil)
  end

  it 'reads each file once' do
    allow(Digest::SHA256).to receive(:file).and_call_original
    content('one', files).sources(['puppet:///modules/m', *uris])
    expect(Digest::SHA256).to have_received(:file).exactly(5).times
  end
end
