# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/outside'

RSpec.describe PuppetX::Tutti::Outside do
  around { |example| Dir.mktmpdir { |dir| (@root = dir) && example.run } }

  after { Puppet.settings.parse_config('') }

  before do
    Puppet.initialize_settings(['--confdir', '/nonexistent', '--vardir', '/nonexistent']) unless Puppet.settings.global_defaults_initialized?
    Puppet[:environmentpath] = path('code')
    Puppet[:hiera_config] = write('hiera.yaml', <<~YAML)
      version: 5
      defaults: {datadir: #{path('nowhere')}}
      hierarchy:
        - {name: a, datadir: "#{path('data')}/%{environment}", path: a.yaml}
        - {name: relative, datadir: relative, path: ../near/b.yaml}
        - {name: all, datadir: "/%{root}", path: c.yaml}
        - {name: linked, datadir: "#{path('linked-%{environment}')}", path: d.yaml}
        - {name: absolute, path: "#{path('absolute')}/e.yaml"}
        - {name: later, datadir: "#{path('later')}", path: h.yaml}
        - {name: swapped, datadir: "#{path('current')}/data", path: i.yaml}
        - {name: mapped, mapped_paths: [roles, role, "#{path('mapped')}/%{role}.yaml"]}
    YAML
    write('modules/b/hiera.yaml', "{version: 5, hierarchy: [{name: a, datadir: #{path('of-a-module')}, path: f.yaml}]}")
    write('code/production/modules/m/hiera.yaml', "{version: 5, hierarchy: [{name: a, path: #{path('of-the-code/g.yaml')}}]}")
    write('code/production/hiera.yaml', '{version: 5, defaults: {datadir: ../../of-the-environment}}')
    %w[of-a-module/f.yaml of-the-code/g.yaml mapped/web.yaml far/h.yaml far/deep/i.yaml].each { |file| write(file, 'one') }
    FileUtils.mkdir_p(path('data/production'))
    File.symlink(path('far/h.yaml'), path('data/production/h.yaml'))
    File.symlink(path('far/deep'), path('data/production/deep'))
    %w[modules/b/templates/x.epp data/production/a.yaml code/production/modules/m/manifests/init.pp].each { |file| write(file, 'one') }
    %w[elsewhere/l/files/f elsewhere/data/d.yaml absolute/e.yaml data/production/.git/FETCH_HEAD linked-one/d.yaml relative/j.yaml near/b.yaml
       of-the-environment/common.yaml v1/data/i.yaml v2/data/i.yaml].each { |file| write(file, 'one') }
    File.symlink('v1', path('current'))
    File.symlink(path('elsewhere/data'), path('data/linked'))
    File.symlink(path('elsewhere/l'), path('modules/l'))
    File.symlink(PuppetX::Tutti::Settings::ROOT, path('modules/tutti'))
    File.symlink(path('gone'), path('modules/broken'))
  end

  def path(name)
    File.join(@root, name)
  end

  def write(name, text)
    FileUtils.mkdir_p(File.dirname(path(name)))
    File.write(path(name), text)
    path(name)
  end

  # Lets Puppet read this text as its puppet.conf.
  def conf(text)
    memory = { environmentpath: path('code'), hiera_config: path('hiera.yaml') }
    Puppet.settings.parse_config(text)
    memory.each { |name, value| Puppet[name] = value }
  end

  def outside(manifest = Puppet::Node::Environment::NO_MANIFEST)
    environment = Puppet::Node::Environment.create(:production, [path('code/production/modules'), path('modules')], manifest)
    allow(environment).to receive(:configuration).and_return(instance_double(Puppet::Settings::EnvironmentConf, path_to_env: path('code/production')))
    described_class.new(environment)
  end

  def changed(manifest = Puppet::Node::Environment::NO_MANIFEST)
    before = outside(manifest).facts
    yield
    after = outside(manifest).facts
    (before.keys | after.keys).reject { |name| before[name] == after[name] }
  end

  it 'has the modules and the data that are not in the code' do
    expect(outside.facts).to match(described_class::MODULES => /\Asha256:\h{64}\z/, described_class::HIERA => /\Asha256:\h{64}\z/)
  end

  # The paths are not resolved. The agent itself follows the links, because a link may change in the meantime.
  it 'has what is to be watched under the names that Puppet uses' do
    expect(outside.directories.map { |dir| dir.delete_prefix("#{@root}/") }).to contain_exactly(
      'modules', 'data/production', 'data/linked', 'linked-one', 'nowhere', 'later', 'current/data', 'relative', 'near/b.yaml', 'of-a-module',
      'of-the-environment', 'of-the-code/g.yaml', 'absolute/e.yaml', 'mapped/web.yaml', 'hiera.yaml', Puppet[:config]
    )
  end

  it 'has nothing where there is nothing' do
    %w[modules data absolute linked-one mapped of-the-code hiera.yaml of-the-environment].each { |name| FileUtils.rm_rf(path(name)) }
    expect(outside.facts).to eq({})
  end

  it 'is the same where nothing has changed' do
    expect(changed { nil }).to eq([])
  end

  [
    ['a file of a module', 'modules/b/templates/x.epp', described_class::MODULES],
    ['a module that comes', 'modules/c/manifests/init.pp', described_class::MODULES],
    ['a module that is a link', 'elsewhere/l/files/f', described_class::MODULES],
    ["Hiera's data", 'data/production/a.yaml', described_class::HIERA],
    ['a file of an absolute path', 'absolute/e.yaml', described_class::HIERA],
    ['data of a module', 'of-a-module/f.yaml', described_class::HIERA],
    ['data of a module of the code', 'of-the-code/g.yaml', described_class::HIERA],
    ['a mapped path', 'mapped/web.yaml', described_class::HIERA],
    ['what a file of data leads to', 'far/h.yaml', described_class::HIERA],
    ['what is in a directory that is a link', 'far/deep/i.yaml', described_class::HIERA],
    ['a relative directory', 'relative/j.yaml', described_class::HIERA],
    ['a relative path', 'near/b.yaml', described_class::HIERA],
    ['a relative directory of the environment', 'of-the-environment/common.yaml', described_class::HIERA],
    ['a directory that comes', 'later/h.yaml', described_class::HIERA],
    ["what git keeps of Hiera's data", 'data/production/.git/FETCH_HEAD', nil],
    ['data of a directory that depends on the node', 'linked-one/d.yaml', described_class::HIERA],
    ['a module of the code', 'code/production/modules/m/manifests/init.pp', nil],
    ['what is nobody\'s', 'elsewhere/other', nil]
  ].each do |reason, file, name|
    it "is another one for #{reason}: #{name.inspect}" do
      expect(changed { write(file, 'another') }).to eq([name].compact)
    end
  end

  it 'is another one for the file that names the levels, in another order' do
    lines = File.readlines(path('hiera.yaml'))
    expect(changed { write('hiera.yaml', (lines[0..2] + lines[3..].reverse).join) }).to eq([described_class::HIERA])
  end

  it 'is another one for a module that is removed' do
    expect(changed { FileUtils.rm_rf(path('modules/l')) }).to eq([described_class::MODULES])
  end

  it 'is another one for a manifest that is not in the code' do
    manifest = write('site.pp', 'one')
    expect(changed(manifest) { write('site.pp', 'another') }).to eq([described_class::MODULES])
  end

  it 'is another one for a link that leads elsewhere' do
    expect(changed { File.unlink(path('current')) && File.symlink('v2', path('current')) }).to eq([described_class::HIERA])
  end

  it 'is another one for data behind a link' do
    write('hiera.yaml', "version: 5\nhierarchy: [{name: a, datadir: #{path('data/linked')}, path: d.yaml}]\n")
    expect(changed { write('elsewhere/data/d.yaml', 'another') }).to eq([described_class::HIERA])
  end

  it 'is another one for a setting that code reads in puppet.conf' do
    conf("[main]\nruninterval = 10m\n")
    expect(changed { conf("[main]\nruninterval = 20m\n") }).to eq([described_class::SETTINGS])
  end

  {
    'a setting of the program' => "[main]\nruninterval = 10m\n[user]\nruninterval = 20m\n",
    'another setting' => "[main]\nruninterval = 10m\nstrict_variables = false\n",
    'a setting that is removed' => "[main]\n"
  }.each do |reason, text|
    it "is another one for #{reason} in puppet.conf" do
      conf("[main]\nruninterval = 10m\n")
      expect(changed { conf(text) }).to eq([described_class::SETTINGS])
    end
  end

  {
    'a comment' => "[main]\n# often\nruninterval = 10m\n",
    'a setting that the order decides' => "[main]\nruninterval = 10m\nnoop = true\n",
    'a section of another program' => "[main]\nruninterval = 10m\n[agent]\nruninterval = 20m\n"
  }.each do |reason, text|
    it "is the same for #{reason} in puppet.conf" do
      allow(Puppet.settings).to receive(:set_by_cli) { |name| false if name == :noop } # --no-noop
      conf("[main]\nruninterval = 10m\n")
      expect(changed { conf(text) }).to eq([])
    end
  end

  it 'has puppet.conf, and nothing else, where a Puppet Server compiles' do
    conf("[main]\nenvironment = test\n")
    served = described_class.new(nil)
    expect([served.facts.keys, served.directories]).to eq([[described_class::SETTINGS], [Puppet[:config]]])
  end

  it 'does not look at what the order calls volatile' do
    conf("[main]\nruninterval = 10m\n")
    names = [described_class::MODULES, described_class::HIERA, described_class::SETTINGS]
    quiet = described_class.new(outside.instance_variable_get(:@environment), names)
    expect([quiet.facts, quiet.directories]).to eq([{}, []])
  end

  it 'ends where links lead in a circle' do
    File.symlink(path('data/production'), path('data/production/again'))
    File.symlink(path('far'), path('far/deep/far'))
    expect(changed { write('far/deep/i.yaml', 'another') }).to eq([described_class::HIERA])
  end

  it 'has no data but the file itself where that is invalid' do
    %w[modules code].each { |name| FileUtils.rm_rf(path(name)) }
    write('hiera.yaml', "version: 5\nhierarchy: {")
    expect([outside.facts.keys, outside.directories]).to eq([[described_class::HIERA], [path('hiera.yaml'), Puppet[:config]]])
  end
end
