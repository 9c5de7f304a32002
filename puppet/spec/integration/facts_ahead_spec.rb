# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/certificates'
require_relative '../support/own_facter'
require_relative '../support/warm_rows'

# The examples check facts that a child of the warm parent collects after one run, for the next run.
RSpec.describe 'facts that are collected ahead' do
  fact = ->(value) { "Facter.add(:mine) { setcode { #{value} } }\n" }
  plugin = 'code/production/modules/m/lib/facter/mine.rb'

  thing = "Puppet::Type.newtype(:thing) { newparam(:name) }\nrequire_relative 'thing/part'\n"

  # The start of a parent takes as long as two runs. Therefore the examples share one parent, except examples
  # that end the parent or need another one.
  let(:parent) { @parent }
  let(:first) do
    RealRun.new(parent: parent).manifest("notify { \"${facts['mine']} ${facts['os']['family']}\": }\n").tap do |run|
      run.write(plugin, fact.call("'one'"))
      run.puppet_conf("lastrunfile = #{run.path('summary.yaml')}\n") # no other run writes it
    end
  end

  before(:all) { @parent = WarmParent.new(RealRun.environment) }

  after do
    parent.equal?(@parent) ? parent.forget : parent.stop
    first.clean
  end

  after(:all) { @parent.stop }

  # Does the first run and a collection, makes a change, and then does the second run.
  def second(age: 60)
    first.call
    parent.collect(first.dir, age: age)
    yield if block_given?
    first.again.call
  end

  def ages(run)
    run.lines('phase.jsonl').map { |line| line['age'] }.compact
  end

  def colds(run)
    run.lines('phase.jsonl').map { |line| line['cold'] }.compact
  end

  def said(run)
    run.events('start').map { |event| event['resource'] }.grep(/Notify/)
  end

  def facts(run)
    passing = /uptime|memory|load_averages|mountpoints|disks|partitions|timestamp|processors|free|size/
    JSON.parse(File.read(run.path("#{run.run}/facts.json"))).reject { |name, _| name.match?(passing) }
  end

  it 'are those that the run would have collected' do
    run = second
    expect(ages(run)).to match([be_between(0, 60)]), run.said
    expect(said(run)).to eq(said(first))
    expect(facts(run)).to eq(facts(first))
    expect(Dir.children(first.dir)).not_to include('ahead')
  end

  it 'are not collected again: what changes meanwhile is not seen, as it is younger than the limit' do
    run = second { first.write(plugin, fact.call("'two'")) }
    expect([ages(run).length, said(run).first]).to match([1, /one/]), run.said
  end

  # Facter runs all external facts before it reports that a fact does not exist, and Puppet always asks for some
  # unknown facts.
  it 'are all that the run asks for, what there is not included' do
    first.write('code/production/modules/m/facts.d/outside.sh', "#!/bin/sh\necho x >> #{first.path('asked')}\n", mode: 0o755)
    run = second
    expect([ages(run).length, File.readlines(first.path('asked')).length]).to eq([1, 2]), run.said
  end

  # Does the first run, and then starts a collection. The collection ends only when the example lets it end.
  let(:collecting) do
    first.call
    first.write(plugin, "Facter.add(:mine) { setcode { File.read('#{first.path('late')}').chomp } }\n")
    File.mkfifo(first.path('late'))
    parent.begin_collection(first.dir)
    late = File.open(first.path('late'), 'w') # the collection reads this FIFO
    [parent.children, late]
  end

  it 'are waited for when a run begins meanwhile: they are not collected twice' do
    (collector,), late = collecting
    run = first.again
    run.call do
      run.wait_for("#{run.run}/phase.jsonl", /"facts"/)
      late.puts('two')
      late.close
    end
    expect([ages(run), said(run).first]).to match([[be_between(0, 60)], /two/]), run.said
    expect(WarmParent.alive?(collector)).to be(false)
  end

  it 'are collected by the run itself when the collection that it waits for is killed' do
    (collector,), late = collecting
    run = first.again
    run.call do
      run.wait_for("#{run.run}/phase.jsonl", /"facts"/)
      first.write(plugin, fact.call("'own'"))
      Process.kill('KILL', collector)
    end
    expect([ages(run), said(run).first]).to match([[], /own/]), run.said
  ensure
    late&.close
  end

  it 'are waited for no longer than they are collected: a fact has left a process behind' do
    first.call
    first.write(plugin, "Facter.add(:mine) { setcode { File.write('#{first.path('left')}', fork { sleep }.to_s) && 'two' } }\n")
    parent.begin_collection(first.dir)
    run = first.again.call
    expect([ages(run), said(run).first]).to match([[be_between(0, 60)], /two/]), run.said
  ensure
    Process.kill('KILL', Integer(File.read(first.path('left'))))
  end

  it 'are forgotten when a run has ended while another one waited for the lock' do
    first.call
    parent.collect(first.dir)
    first.write(plugin, fact.call("'two'"))
    run = first.again
    run.agent.on('lock_wait') do
      FileUtils.touch(first.path('summary.yaml'))
      run.release_lock
      { ok: true, released: true }
    end
    run.hold_lock.call
    expect([ages(run), said(run).first]).to match([[], /two/]), run.said
  end

  it 'are not taken when they are older than the limit' do
    run = second(age: 0) { first.write(plugin, fact.call("'two'")) }
    expect([ages(run), said(run).first]).to match([[], /two/]), run.said
  end

  it 'are not taken when a Puppet run has ended since' do
    run = second do
      FileUtils.touch(first.path('summary.yaml'))
      first.write(plugin, fact.call("'two'"))
    end
    expect([ages(run), said(run).first]).to match([[], /two/]), run.said
  end

  it 'are not taken when a Puppet run has ended since, and the clock was set' do
    run = second do
      FileUtils.touch(first.path('summary.yaml'), mtime: Time.now - 3600) # by this time, the run ended before the collection
      first.write(plugin, fact.call("'two'"))
    end
    expect([ages(run), said(run).first]).to match([[], /two/]), run.said
  end

  it 'are not taken when a module that is not in the environment has another fact' do
    based = first.puppet_conf("basemodulepath = #{first.path('base')}\n").write('base/b/lib/facter/mine.rb', fact.call("'one'"))
    FileUtils.rm(first.path(plugin))
    FileUtils.touch(based, mtime: Time.now - 60)
    run = second { first.write('base/b/lib/facter/mine.rb', fact.call("'two'")) }
    expect([ages(run), said(run).first]).to match([[], /two/]), run.said
  end

  it 'are not taken when a module came since that is not in the environment' do
    first.puppet_conf("basemodulepath = #{first.path('base')}\n").write('base/b/lib/facter/other.rb', '')
    run = second { first.write('base/c/lib/facter/late.rb', fact.call("'two'")) }
    expect(ages(run)).to eq([]), run.said
  end

  # Returns the file that the agent reads after a run.
  def now
    JSON.parse(File.read(first.path("#{first.run}/facts-now.json")))
  end

  it 'are told to be those that the run had' do
    first.call
    parent.collect(first.dir)
    expect(now).to include('facts' => first.agent.asked('gate').first['facts_digest'], 'changed' => [])
  end

  it 'are told also where a plugin keeps the run from starting warm, but no run gets them' do
    name = 'lib/puppet_x/tutti/canonical.rb'
    first.write("code/production/modules/m/#{name}", File.read(File.expand_path("../../#{name}", __dir__)))
    run = second { expect(now).to include('facts' => first.agent.asked('gate').first['facts_digest'], 'changed' => []) }
    expect([ages(run), colds(run)]).to match([[], [/canonical.rb is loaded instead/]]), run.said
  end

  it 'are told to be other ones, by name' do
    first.call
    first.write(plugin, fact.call("'two'"))
    parent.collect(first.dir)
    expect(now['changed']).to eq(['mine'])
    expect(JSON.parse(File.read(first.path("#{first.run}/facts-held.json")))).to include('mine' => 'two', 'kernel' => 'Linux')
    expect(now['facts']).not_to eq(first.agent.asked('gate').first['facts_digest'])
  end

  {
    'a module of the basemodulepath changes' => ['base/b/templates/x.epp', 'modules_outside_the_code'],
    'a module comes there' => ['base/c/manifests/init.pp', 'modules_outside_the_code'],
    "Hiera's data of the site change" => ['data/common.yaml', 'hiera_data_outside_the_code'],
    "the levels of the site's Hiera change" => ['site.yaml', 'hiera_data_outside_the_code', "version: 5\nhierarchy: [{name: a, path: a.yaml}]\n"]
  }.each do |reason, (changed, name, text)|
    it "are told to be other ones when #{reason}" do
      first.puppet_conf("basemodulepath = #{first.path('base')}\nhiera_config = #{first.path('site.yaml')}\n")
      { 'base/b/templates/x.epp' => 'a', 'site.yaml' => "version: 5\n", 'data/common.yaml' => "a: 1\n" }.each { |file, content| first.write(file, content) }
      first.call
      parent.collect(first.dir)
      expect(now).to include('facts' => first.agent.asked('gate').first['facts_digest'], 'changed' => [])
      expect(now['watch']).to include(first.path('base'), first.path('data'))
      first.write(changed, text || 'other')
      parent.collect(first.dir)
      expect(now['changed']).to eq([name])
      expect(now['facts']).not_to eq(first.agent.asked('gate').first['facts_digest'])
    end
  end

  it 'are told to be other ones when a setting of puppet.conf changes' do
    first.call
    parent.collect(first.dir)
    expect(now).to include('facts' => first.agent.asked('gate').first['facts_digest'], 'changed' => [])
    expect(now['watch']).to include(first.path('conf/puppet.conf'))
    first.puppet_conf("runinterval = 20m\n")
    parent.collect(first.dir)
    expect(now['changed']).to eq(['settings_of_puppet_conf'])
  end

  it 'are told to be the same where only those are other ones that the order lists' do
    first.order['volatile_facts'] = ['mine']
    first.call
    first.write(plugin, fact.call("'two'"))
    parent.collect(first.dir)
    expect(now).to include('facts' => first.agent.asked('gate').first['facts_digest'], 'changed' => [])
  end

  it 'are told where there is no warm parent, too' do
    first.call
    first.write(plugin, fact.call("'two'"))
    system(first.environment, RbConfig.ruby, RealRun::LAUNCHER, '--facts', first.dir, exception: true)
    expect(now['changed']).to eq(['mine'])
    expect(Dir.children(first.dir)).not_to include('ahead')
  end

  {
    'a constant' => "OfFacts = 1\n",
    'a method of a class of Ruby' => "class String; def shout; upcase; end; end\n"
  }.each do |what, text|
    it "are not taken where a fact's file defines #{what}: the run is cold, and says why" do
      first.write(plugin, "#{text}#{fact.call("'one'")}")
      run = second
      expect([ages(run), said(run).first, colds(run)]).to match([[], /one/, [%r{its facts were collected before, and m/lib/facter/mine\.rb}]]), run.said
    end
  end

  it "lend what a fact's file defines outside of any class: whoever calls it has the file loaded" do
    first.write('code/production/modules/m/lib/puppet/functions/m/word.rb', <<~RUBY)
      Puppet::Functions.create_function(:'m::word') { def word; Object.new.instance_eval { of_fact('a', last: 'b') { 'c' } }; end }
    RUBY
    first.manifest("notify { m::word(): } -> notify { \"again ${m::word()}\": }\n")
    first.write(plugin, "def of_fact(one, last: 'none')\n  one + last + yield\nend\n#{fact.call("'one'")}")
    run = second
    expect([ages(run).length, said(run)]).to eq([1, ['Notify[abc]', 'Notify[again abc]']]), run.said
  end

  describe 'with facts of the machine that no module has' do
    let(:facter) { OwnFacter.new }
    let(:parent) { WarmParent.new(RealRun.environment.merge('RUBYLIB' => facter.dir)) }

    before do
      File.write(facter.conf, "global : { external-dir : [ \"#{facter.path('facts.d')}\" ] }\n")
      FileUtils.mkdir(facter.path('facts.d'))
      File.write(facter.path('facts.d/role.txt'), "role=one\n")
      first.manifest('notify { $facts["role"]: }')
    end

    after { facter.clean }

    it 'are taken while these are as they were' do
      run = second
      expect([ages(run).length, said(run)]).to eq([1, ['Notify[one]']]), run.said
    end

    it 'are not taken when one was written since: a script writes a role, and the run has it' do
      run = second { File.write(facter.path('facts.d/role.txt'), "role=two\n") }
      expect([ages(run), said(run)]).to eq([[], ['Notify[two]']]), run.said
      expect(now['watch']).to include(facter.path('facts.d'))
    end

    it 'are not taken when one was written while they were collected' do
      first.write(plugin, <<~RUBY)
        Facter.add(:mine) do
          setcode do
            was = Facter.value('role')
            File.write('#{facter.path('facts.d/role.txt')}', "role=two\\n") if File.exist?('#{first.path('marker')}')
            was
          end
        end
      RUBY
      first.call
      first.write('marker', '')
      parent.collect(first.dir)
      FileUtils.rm(first.path('marker'))
      run = first.again.call
      expect([ages(run), said(run)]).to eq([[], ['Notify[two]']]), run.said
    end

    it 'are not taken when one was added since' do
      run = second { File.write(facter.path('facts.d/other.txt'), "other=two\n") }
      expect(ages(run)).to eq([]), run.said
    end
  end

  # A fact that uses the type package changes the environment. The type tells apt not to ask questions.
  it 'bring what facts have changed in the process' do
    first.write(plugin, fact.call("(ENV['OF_M'] = 'here') && ENV.delete('LANG') && File.umask(0o027) && Dir.chdir('/usr') && 'one'"))
    command = first.write('command', "#!/bin/sh\necho \"$OF_M\" \"${LANG-none}\" $(umask) >> #{first.path('seen')}\n", mode: 0o755)
    first.write('code/production/modules/m/lib/puppet/functions/m/pwd.rb', "Puppet::Functions.create_function(:'m::pwd') { def pwd; Dir.pwd; end }\n")
    first.manifest("exec { '#{command}': } notify { m::pwd(): }\n")
    run = second
    expect([ages(run).length, File.readlines(first.path('seen'), chomp: true).uniq.length, said(run)]).to eq([1, 1, ['Notify[/usr]']]), run.said
    expect(File.readlines(first.path('seen'), chomp: true)).to all(match(/\Ahere .* 0027\z/))
  end

  it 'are no reason to fail: what they have gone to is no more, and the run is cold' do
    FileUtils.mkdir(gone = first.path('gone'))
    first.write(plugin, "#{fact.call("'one'")}Dir.chdir('#{gone}')\n")
    run = second do
      FileUtils.rmdir(gone)
      first.write(plugin, fact.call("'two'"))
    end
    expect([ages(run), said(run).first, colds(run)]).to match([[], /two/, [/gone/]]), run.said
  end

  it 'are no reason to fail: what they have required counts on their file, and the run is cold' do
    library = first.write('code/production/modules/m/lib/puppet_x/m/word.rb', "OfFact\n")
    first.write(plugin, "OfFact = 1\nrequire '#{library}'\n#{fact.call("'one'")}")
    run = second
    expect([ages(run), said(run).first, colds(run)]).to match([[], /one/, [/OfFact/]]), run.said
  end

  it 'bring what facts have required: a function counts on it' do
    library = first.write('code/production/modules/m/lib/puppet_x/m/word.rb', "module OfM; WORD = 'loaded'; end\n")
    first.write(plugin, "require '#{library}'\n#{fact.call("'one'")}")
    first.write('code/production/modules/m/lib/puppet/functions/m/word.rb', "Puppet::Functions.create_function(:'m::word') { def word; OfM::WORD; end }\n")
    first.manifest("notify { m::word(): }\n")
    run = second
    expect([ages(run).length, said(run).first]).to match([1, /loaded/]), run.said
  end

  {
    'bring no type that a fact has asked for: Puppet loads it when it comes to use it' => 'Puppet::Type.type(:thing)',
    'bring no type that a fact has required: Puppet loads it when it comes to use it' => "require('puppet/type/thing')"
  }.each do |title, code|
    it title do
      first.write('code/production/modules/m/lib/puppet/type/thing.rb', thing)
      first.write('code/production/modules/m/lib/puppet/type/thing/part.rb', "Puppet::Type.type(:thing).newproperty(:part)\n")
      first.write('code/production/modules/m/lib/puppet/provider/thing/one.rb', <<~RUBY)
        File.write('#{first.path('loaded')}', 'x', mode: 'a')
        Puppet::Type.type(:thing).provide(:one)
      RUBY
      first.write(plugin, fact.call("#{code} && 'one'"))
      run = second
      expect([ages(run).length, File.read(first.path('loaded'))]).to eq([1, 'x' * 2]), run.said
    end
  end

  it 'bring a type that a fact has required if what was required later counts on it' do
    first.write('code/production/modules/m/lib/puppet/type/thing.rb', thing)
    first.write('code/production/modules/m/lib/puppet/type/thing/part.rb', "Puppet::Type.type(:thing).newproperty(:part)\n")
    library = first.write('code/production/modules/m/lib/puppet_x/m/word.rb', "class Puppet::Type::Thing; WORD = validproperties.inspect; end\n")
    first.write(plugin, "require 'puppet/type/thing'\nrequire '#{library}'\n#{fact.call("'one'")}")
    first.write('code/production/modules/m/lib/puppet/functions/m/word.rb', <<~RUBY)
      Puppet::Functions.create_function(:'m::word') { def word; Puppet::Type.type(:thing)::WORD; end }
    RUBY
    first.manifest("notify { m::word(): }\n")
    run = second
    expect([ages(run).length, said(run)]).to eq([1, ['Notify[[:part]]']]), run.said
  end

  it 'bring a type that a fact has required from where Puppet would not find it' do
    other = first.write('code/production/modules/m/files/puppet/type/other.rb', "Puppet::Type.newtype(:other) { newparam(:name) }\n")
    first.write(plugin, fact.call("require('#{other}') && 'one'"))
    first.manifest("other { 'a': }\n")
    run = second
    expect([ages(run).length, run.events('start').map { |event| event['resource'] }]).to match([1, include('Other[a]')]), run.said
  end

  it 'bring where facts have found their libraries: a function looks there' do
    first.write('code/production/modules/m/vendor/one.rb', '')
    first.write('code/production/modules/m/vendor/two.rb', "module OfM; WORD = 'found'; end\n")
    first.write(plugin, "$LOAD_PATH.unshift('#{first.path('code/production/modules/m/vendor')}')\nrequire 'one'\n#{fact.call("'one'")}")
    first.write('code/production/modules/m/lib/puppet/functions/m/word.rb', <<~RUBY)
      Puppet::Functions.create_function(:'m::word') { def word; require 'two'; OfM::WORD; end }
    RUBY
    first.manifest("notify { m::word(): }\n")
    run = second
    expect([ages(run).length, said(run).first]).to match([1, /found/]), run.said
  end

  context 'of a parent that ends' do
    let(:parent) { WarmParent.new(RealRun.environment) }

    it 'are not collected any more' do
      first.call
      first.write(plugin, "Facter.add(:mine) { setcode { File.open('#{first.path('begun')}', 'w').close; sleep } }\n")
      parent.order('do' => 'facts', 'dir' => first.dir)
      first.wait_for('begun', //)
      collecting = parent.children
      parent.stop
      expect([collecting.length, collecting.map { |pid| WarmParent.alive?(pid) }]).to eq([1, [false]])
    end
  end

  it 'are not taken where there are none: a fact has ended the process' do
    first.call
    first.write(plugin, fact.call('exit! 1'))
    parent.collect(first.dir)
    first.write(plugin, fact.call("'two'"))
    run = first.again.call
    expect([ages(run), said(run).first]).to match([[], /two/]), run.said
  end

  # `puppet agent` gets its plugins after the run has begun. Here the plugins come from a directory, because no
  # server answers.
  context 'for `puppet agent`' do
    let(:probe) { File.join(Dir.mktmpdir('tutti-probe'), 'probe.rb') }
    let(:parent) do
      File.write(probe, <<~RUBY)
        require 'puppet'
        require 'puppet/configurer'
        Puppet::Configurer.prepend(Module.new { def valid_server_environment?; true; end; #{more} })
      RUBY
      WarmParent.new(RealRun.environment.merge('RUBYOPT' => "-r#{probe}"))
    end
    let(:more) { '' }
    let(:first) do
      RealRun.new(parent: parent).tap do |run|
        run.order.merge!(WarmRows::SERVER)
        authority = Certificates.make('authority')
        node = Certificates.make(run.order['node'], authority)
        { 'certs/ca' => authority.certificate, "certs/#{run.order['node']}" => node.certificate, "private_keys/#{run.order['node']}" => node.key,
          "public_keys/#{run.order['node']}" => node.key.public_key }.each { |name, part| run.write("ssl/#{name}.pem", part.to_pem) }
        run.write('plugins/facter/mine.rb', fact.call("'one'"))
        FileUtils.mkdir_p(run.path('pluginfacts'))
        run.puppet_conf(<<~CONF)
          certname = #{run.order['node']}
          server = localhost
          serverport = 1
          certificate_revocation = false
          pluginsource = #{run.path('plugins')}
          pluginfactsource = #{run.path('pluginfacts')}
          lastrunfile = #{run.path('summary.yaml')}
        CONF
      end
    end

    after { FileUtils.rm_rf(File.dirname(probe)) }

    it 'are taken while the plugins are the same' do
      run = second
      expect([ages(run).length, facts(run)['mine']]).to eq([1, 'one']), run.said
    end

    it 'are not taken when plugins come after the run has begun' do
      run = second do
        first.write('plugins/facter/mine.rb', fact.call("'two'"))
        first.write('plugins/facter/newer.rb', "Facter.add(:newer) { setcode { 'here' } }\n")
      end
      expect([ages(run), facts(run).values_at('mine', 'newer')]).to eq([[], %w[two here]]), run.said
    end

    # The server names another environment, so Puppet gets plugins and facts once more.
    context 'which is of another environment than it thought' do
      let(:more) { 'def get_facts(*); super; super; end' }

      it 'are waited for once' do
        first.call
        File.mkfifo(first.path('late'))
        first.write('var/lib/facter/mine.rb', late = "Facter.add(:mine) { setcode { File.read('#{first.path('late')}').chomp } }\n")
        first.write('plugins/facter/mine.rb', late)
        parent.begin_collection(first.dir)
        writer = File.open(first.path('late'), 'w') # the collection reads this FIFO
        run = first.again
        run.call do
          run.wait_for("#{run.run}/phase.jsonl", /"facts"/)
          writer.puts('two')
          writer.close
        end
        expect([ages(run).length, facts(run)['mine']]).to eq([2, 'two']), run.said
      end
    end
  end
end
