# frozen_string_literal: true

require 'fileutils'
require 'puppet'

# The rows list all things that may differ between a run that finds Puppet loaded and a run that loads Puppet
# itself.
module WarmRows
  # `between` means that another run of the same parent comes first. The given change happens after that run.
  # `cold` is the reason why the run becomes cold. `changed` is the changed file that makes the parent end.
  Row = Struct.new(:reason, :setup, :between, :cold, :changed, :order, :shows, keyword_init: true)

  LIB = 'code/production/modules/m/lib'
  SERVER = { 'program' => 'agent', 'environment' => '', 'environmentpath' => '' }.freeze
  NOTIFY = <<~RUBY
    Puppet::Type.newtype(:notify) do
      newparam(:name) { isnamevar }
      newproperty(:message) do
        def retrieve; :absent; end
        def set(value); provider; send_log(:warning, "of the module: \#{value}"); end
        defaultto { @resource[:name] }
      end
    end
  RUBY

  # Returns a type of a module, whose provider logs a word.
  def self.own(word, confine = '')
    { "#{LIB}/puppet/type/own.rb" => "Puppet::Type.newtype(:own) do\n  newparam(:name) { isnamevar }\n  newproperty(:state)\n" \
                                     "  def self.word; 'type #{word}'; end\nend\n",
      "#{LIB}/puppet/provider/own/ruby.rb" => <<~RUBY }
        Puppet::Type.type(:own).provide(:ruby) do
          #{confine}
          def state; :none; end
          def state=(value); Puppet.warning("\#{resource.class.word}, provider #{word}"); end
        end
      RUBY
  end

  # Returns a provider of a module for a type of Puppet. The provider logs a word.
  def self.aaa(word)
    { "#{LIB}/puppet/provider/group/aaa.rb" => <<~RUBY }
      Puppet::Type.type(:group).provide(:aaa) do
        defaultfor kernel: 'Linux'
        def self.specificity; 1000; end
        def exists?; false; end
        def create; Puppet.warning('made by aaa #{word}'); end
        def gid; :absent; end
        def members; []; end
      end
    RUBY
  end

  AAA = "group { 'tutti-none': ensure => present }\n"

  def self.function(name, body)
    { "#{LIB}/puppet/functions/m/#{name}.rb" => "Puppet::Functions.create_function(:'m::#{name}') do\n  def #{name}(*_)\n    #{body}\n  end\nend\n" }
  end

  def self.fact(name, value, weight = 1000)
    "Facter.add(:#{name}) { has_weight #{weight}; setcode { #{value} } }\n"
  end

  # Returns a function that writes these files and this manifest for a run.
  def self.code(files, manifest = "notify { 'a': }\n")
    lambda do |run|
      files.each { |name, text| run.write(name, text) }
      run.manifest(manifest)
    end
  end

  OTHER_SYSTEM = "#{fact('operatingsystem', "'Plan9'")}#{fact('osfamily', "'Plan9'")}" \
                 "#{fact('os', "{ 'name' => 'Plan9', 'family' => 'Plan9', 'release' => { 'major' => '4', 'full' => '4' } }")}"
  LIBRARY = "Puppet.features.add(:ours, libs: ['tutti_ours'])\n"

  # rubocop:disable Layout/LineLength -- a table is read line by line
  ROWS = [
    Row.new(reason: 'nothing special', setup: code({}), shows: /defined 'message' as 'a'/),
    Row.new(reason: "a module's fact", setup: code({ "#{LIB}/facter/mine.rb" => fact('mine', "'one'") }, "notify { $facts['mine']: }\n"), shows: /as 'one'/),
    Row.new(reason: 'a core type is overridden', setup: code({ "#{LIB}/puppet/type/notify.rb" => NOTIFY }),
            shows: /of the module: a/),
    Row.new(reason: 'a core type is overridden, below a symbolic link',
            setup: lambda { |run|
              run.write('elsewhere/notify.rb', NOTIFY)
              FileUtils.mkdir_p(run.path("#{LIB}/puppet"))
              FileUtils.ln_sf(run.path('elsewhere'), run.path("#{LIB}/puppet/type"))
              run.manifest("notify { 'a': }\n")
            }, shows: /of the module: a/),
    Row.new(reason: 'a link of the name of a provider leads nowhere', shows: /defined/,
            setup: lambda { |run|
              WarmRows.code({ "#{LIB}/puppet/provider/service/README" => '' }).call(run)
              FileUtils.ln_sf('jo@host.123:1', run.path("#{LIB}/puppet/provider/service/.#systemd.rb"))
            }),
    Row.new(reason: 'a file that nobody loads has a name that is no text', cold: /could not be compared/, shows: /defined/,
            setup: lambda { |run|
              WarmRows.code({ "#{LIB}/puppet/util/README" => '' }).call(run)
              File.write(run.path("#{LIB}/puppet/util/\xFF.rb"), '')
            }),
    Row.new(reason: 'a core provider is overridden', shows: /returned 7/,
            setup: code({ "#{LIB}/puppet/provider/exec/posix.rb" => <<~RUBY }, "exec { '/bin/true': }\n")),
              Puppet::Type.type(:exec).provide(:posix) do
                def validatecmd(_command); true; end
                def run(_command, _check = false); [Puppet::Util::Execution::ProcessOutput.new('', 7), Struct.new(:exitstatus, :to_i).new(7, 7)]; end
              end
            RUBY
    Row.new(reason: 'a core type has a further provider, which is the default one', shows: /by aaa one/, setup: code(aaa('one'), AAA)),
    Row.new(reason: 'a core function is overridden', setup: code({ "#{LIB}/puppet/functions/upcase.rb" => "Puppet::Functions.create_function(:upcase) do\n  def upcase(_); 'mine'; end\nend\n" },
                                                                 "notify { upcase('a'): }\n"), shows: /as '(mine|A)'/),
    Row.new(reason: 'a core function of the old kind is overridden', shows: /as '(mine|\d)'/,
            setup: code({ "#{LIB}/puppet/parser/functions/fqdn_rand.rb" => "Puppet::Parser::Functions.newfunction(:fqdn_rand, type: :rvalue) { |_| 'mine' }\n" }, "notify { String(fqdn_rand(9)): }\n")),
    Row.new(reason: 'a core feature is overridden', cold: %r{puppet/feature/selinux\.rb}, shows: /defined/,
            setup: code({ "#{LIB}/puppet/feature/selinux.rb" => "Puppet.features.add(:selinux) { true }\n" })),
    Row.new(reason: 'methods that Puppet uses while it is loaded are wrapped', shows: /as 'wrapped'/,
            setup: code(function('wrap', <<~RUBY), "notify { m::wrap(): }\nexec { '/bin/true': }\n")),
              { Puppet::Settings => :[], Puppet::Type.singleton_class => :type, Puppet::Util::Execution.singleton_class => :execute,
                Puppet::Provider.singleton_class => :which }.each do |where, name|
                hidden = where.private_method_defined?(name)
                where.send(:alias_method, "m_\#{name}", name)
                where.send(:define_method, name) { |*arguments, &block| send("m_\#{name}", *arguments, &block) }
                where.send(:private, name) if hidden
              end
              'wrapped'
            RUBY
    Row.new(reason: "a file of Puppet's that no type is", cold: %r{puppet/util/checksums\.rb}, shows: /defined/,
            setup: code({ "#{LIB}/puppet/util/checksums.rb" => "raise 'not this one'\n" })),
    Row.new(reason: 'a file that Puppet looked for in vain', cold: %r{puppet/confine/(fips_enabled|operatingsystem)\.rb}, shows: /defined/,
            setup: code(%w[fips_enabled operatingsystem].to_h do |name|
                          ["#{LIB}/puppet/confine/#{name}.rb", "class Puppet::Confine::#{name.split('_').map(&:capitalize).join} < Puppet::Confine; def pass?(_); false; end; end\n"]
                        end)),
    Row.new(reason: 'what Facter says of the system is overridden', cold: /fact .* when Puppet was loaded/, shows: /as 'Plan9'/,
            setup: code({ "#{LIB}/facter/other.rb" => OTHER_SYSTEM }, "notify { $facts['os']['name']: }\n")),
    Row.new(reason: 'a setting that a provider asks for when it is loaded', cold: /setting ldapuser/, shows: /defined/,
            setup: ->(run) { WarmRows.code({}).call(run.puppet_conf("ldapuser = jo\n")) }),
    Row.new(reason: 'debug messages, also those of loading', order: { 'debug' => true }, cold: /debug/, setup: code({}), shows: /defined/),
    Row.new(reason: 'a fact that changes the environment, before the run begins again', cold: /fact .* when Puppet was loaded/, shows: /as 'x'/,
            setup: code({ "#{LIB}/facter/other.rb" => OTHER_SYSTEM, "#{LIB}/facter/path.rb" => fact('path_of_m', "ENV['OF_M'] = ENV['OF_M'].to_s + 'x'") },
                        "notify { $facts['path_of_m']: }\n")),
    Row.new(reason: 'what was synchronised for `puppet agent` overrides a core type', order: SERVER, shows: /parse CA/,
            setup: lambda { |run|
              run.puppet_conf("certname = node.example.net\nserver = localhost\nserverport = 1\n").certificates.write('var/lib/puppet/type/notify.rb', NOTIFY)
            }),
    Row.new(reason: 'a function has changed between two runs', setup: code(function('word', "'one'"), "notify { m::word(): }\n"),
            between: code(function('word', "'two'"), "notify { m::word(): }\n"), shows: /as 'two'/),
    Row.new(reason: 'a type and its provider have changed between two runs', setup: code(own('one'), "own { 'a': state => 'x' }\n"),
            between: code(own('two'), "own { 'a': state => 'x' }\n"), shows: /type two, provider two/),
    Row.new(reason: "a module's provider of a core type has changed between two runs", setup: code(aaa('one'), AAA),
            between: code(aaa('two'), AAA), shows: /by aaa two/),
    Row.new(reason: 'a fact has changed between two runs', setup: code({ "#{LIB}/facter/mine.rb" => fact('mine', "'one'") }, "notify { $facts['mine']: }\n"),
            between: code({ "#{LIB}/facter/mine.rb" => fact('mine', "'two'") }, "notify { $facts['mine']: }\n"), shows: /as 'two'/),
    Row.new(reason: 'an external fact has changed between two runs', shows: /as 'two'/,
            setup: code({ 'code/production/modules/m/facts.d/out.txt' => "out=one\n" }, "notify { $facts['out']: }\n"),
            between: code({ 'code/production/modules/m/facts.d/out.txt' => "out=two\n" }, "notify { $facts['out']: }\n")),
    Row.new(reason: 'hiera data has changed between two runs', shows: /as 'two'/,
            setup: code({ 'code/production/hiera.yaml' => "version: 5\nhierarchy: [{name: c, path: c.yaml}]\n", 'code/production/data/c.yaml' => "k: one\n" }, "notify { lookup('k'): }\n"),
            between: code({ 'code/production/data/c.yaml' => "k: two\n" }, "notify { lookup('k'): }\n")),
    Row.new(reason: 'puppet.conf has changed between two runs', setup: code({}, "notify { String($settings::strict_variables): }\n"), shows: /as 'true'|as 'false'/,
            between: ->(run) { run.puppet_conf("strict_variables = #{Puppet.version.to_i < 8}\nprerun_command = /bin/true\n") }),
    Row.new(reason: "the run before installed what a module's feature needs", shows: /type one, provider one/,
            setup: lambda { |run|
              WarmRows.code({ **WarmRows.own('one', 'confine feature: :ours'), "#{LIB}/puppet/feature/ours.rb" => LIBRARY },
                            "own { 'a': state => 'x', require => File['#{run.path(LIB)}/tutti_ours.rb'] }\nfile { '#{run.path(LIB)}/tutti_ours.rb': content => '' }\n").call(run)
            },
            between: ->(run) { run.manifest("own { 'a': state => 'x' }\n") }),
    Row.new(reason: 'an installed library appeared before one that is loaded', setup: code({}), shows: /defined/, changed: %r{/site$},
            between: ->(_run) { File.write(File.join(@site, 'pathname.rb'), "load File.join(RbConfig::CONFIG['rubylibdir'], 'pathname.rb')\n") }),
    Row.new(reason: 'a feature that was asked for has come', setup: code({}), shows: /defined/, cold: /feature libshadow was false/,
            between: ->(_run) { File.write(@flag, '') }),
    Row.new(reason: "a file of Facter's has changed", setup: code({}), shows: /defined/, changed: %r{site/facter/version\.rb},
            between: ->(_run) { File.open(File.join(@site, 'facter/version.rb'), 'a') { |file| file.write("# newer\n") } }),
    Row.new(reason: 'facter.conf has changed', setup: code({}, "notify { String('kernelversion' in $facts): }\n"), shows: /as 'false'/, changed: /facter\.conf/,
            between: ->(_run) { File.write(File.join(@site, 'facter.conf'), "facts : { blocklist : [ \"kernelversion\" ] }\n") })
  ].freeze
  # rubocop:enable Layout/LineLength
end
