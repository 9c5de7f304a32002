# frozen_string_literal: true

require 'puppet'
require_relative 'real_run'

# The cases are the ways in which a run can end. The agent must distinguish these ways, and has only
# the files of a run for this. The specs check these cases, and record.rb stores the cases as samples
# for the agent's own tests.
module Cases
  # `last` is the phase before `done`. `error` is a pattern for the error that a person sees, with its position.
  Case = Struct.new(:name, :reason, :order, :setup, :exit, :last, :report, :error, :at, keyword_init: true)

  GOOD = "notify { 'hello': }\n"

  BLOCKS = <<~PUPPET
    class a { tutti::with('swift/rings') |$v| { notify { 'v': } } }
    class b { tutti::require_exports('sshkey') || { Sshkey <<| |>> } }
    include a, b
    notify { 'after': require => Class['a'] }
  PUPPET

  def self.all
    compiled + catalogs + before + applied + waiting + stopped + agents
  end

  # Carries a case out.
  # @return [RealRun] the run after its end
  def self.run(example)
    run = RealRun.new
    run.write('code/bare/environment.conf', '')
    run.order.merge!(example.order || {})
    example.setup.call(run)
    run.call
  end

  # rubocop:disable Layout/LineLength -- a table is read line by line
  def self.compiled
    [
      Case.new(name: 'compile-fail', reason: 'fail() in a manifest', setup: ->(r) { r.manifest("notify { 'a': }\nfail('no rings yet')\n") },
               exit: 1, last: 'compile', error: /no rings yet/, at: ['site.pp', 2]),
      Case.new(name: 'compile-syntax', reason: 'a syntax error', setup: ->(r) { r.manifest("notify { 'a': }\nfile { '/x' ensure => file }\n") },
               exit: 1, last: 'compile', error: /Syntax error at 'ensure'/, at: ['site.pp', 2]),
      Case.new(name: 'compile-class', reason: 'a class that does not exist', setup: ->(r) { r.manifest("\n\ninclude swift::nothing\n") },
               exit: 1, last: 'compile', error: /Could not find class ::swift::nothing/, at: ['site.pp', 3]),
      Case.new(name: 'compile-type', reason: 'a parameter of the wrong type; the position is in the text only',
               setup: ->(r) { r.manifest("class a(Integer $port) { }\nclass { 'a':\n  port => 'x',\n}\n") },
               exit: 1, last: 'compile', error: /parameter 'port' expects an Integer value, got String/, at: ['site.pp', 2]),
      Case.new(name: 'compile-value', reason: 'a shared value that nobody has published', setup: ->(r) { r.manifest("$v = tutti::value('swift/rings')\n") },
               exit: 1, last: 'compile', error: %r{there is no value "swift/rings" \(nobody has published it\)}, at: ['site.pp', 1]),
      Case.new(name: 'compile-rescued', reason: 'an unanswered question that somebody rescued, and another failure', exit: 1, last: 'compile',
               setup: lambda { |r|
                 r.write('code/production/modules/m/lib/puppet/functions/attempt.rb', <<~RUBY)
                   Puppet::Functions.create_function(:attempt) do
                     def attempt
                       call_function('tutti::value', 'swift/rings')
                     rescue StandardError
                       raise Puppet::Error, 'no second way either'
                     end
                   end
                 RUBY
                 r.manifest("\nattempt()\n")
               }, error: /no second way either/, at: ['site.pp', 2]),
      Case.new(name: 'compile-parameters', reason: 'a parameter without a value, and another one of the wrong type', exit: 1, last: 'compile',
               setup: ->(r) { r.manifest("class db(Integer $port, String $host) { }\nclass { 'db': port => 'x' }\n") },
               error: /expects a value for parameter 'host'/, at: ['site.pp', 2]),
      Case.new(name: 'waiting-parameters', reason: 'class parameters that nobody has set', exit: 1, last: 'compile',
               setup: ->(r) { r.manifest("class db(Integer $port, String $host) { }\n\ninclude db\n") },
               error: /expects a value for parameter 'host'/, at: ['site.pp', 3]),
      Case.new(name: 'waiting-required', reason: 'a key that a level requires, whatever the levels below it have', exit: 1, last: 'compile',
               setup: lambda { |r|
                 r.agent.hiera = { 'db::port' => 5432 }
                 r.write('code/production/hiera.yaml', "version: 5\nhierarchy:\n- {name: t, lookup_key: 'tutti::hiera', options: {required: ['^db::']}}\n" \
                                                       "- {name: c, path: c.yaml}\n")
                 r.write('code/production/data/c.yaml', "db::host: localhost\n")
                 r.manifest("class db(Integer $port, String $host) { }\n\ninclude db\n")
               }, error: /no value for the key "db::host" \(nobody has set it\)/),
      Case.new(name: 'compile-unavailable', reason: 'the agent has no answer to a question',
               setup: lambda { |r|
                 r.manifest("$v = tutti::value('swift/rings', 1)\n")
                 r.agent.on('value') { { ok: false, code: 'unavailable', error: 'the server is away and swift/rings was never asked' } }
               },
               exit: 1, last: 'compile', error: /the server is away.*\(unavailable\)/, at: ['site.pp', 1]),
      Case.new(name: 'compile-manifest', reason: 'an environment without manifest, which Puppet would take for an empty one',
               setup: ->(_r) {}, order: { 'environment' => 'bare' }, exit: 1, last: 'compile', error: /the environment bare has no manifest/)
    ]
  end

  def self.catalogs
    [
      Case.new(name: 'catalog-cycle', reason: 'a dependency cycle', exit: 1, last: 'report', report: 'failed', error: /dependency cycle/,
               setup: ->(r) { r.manifest("notify { 'a': require => Notify['b'] }\nnotify { 'b': require => Notify['a'] }\n") }),
      Case.new(name: 'catalog-invalid', reason: 'a parameter that the type refuses', exit: 1, last: 'convert',
               setup: ->(r) { r.manifest("\nfile { 'relative': ensure => file }\n") }, error: /File paths must be fully qualified/, at: ['site.pp', 2]),
      Case.new(name: 'catalog-missing-target', reason: 'a relation to a resource that is not there', exit: 1, last: 'compile',
               setup: ->(r) { r.manifest("notify { 'a': require => Notify['b'] }\n") }, error: /Could not find resource 'Notify\[b\]'/, at: ['site.pp', 1]),
      Case.new(name: 'catalog-sensitive', reason: 'a secret as a shared value', exit: 1, last: 'convert', error: /value is Sensitive/,
               setup: ->(r) { r.manifest("tutti_value { 'a': value => Sensitive('hunter2') }\n") }, at: ['site.pp', 1])
    ]
  end

  def self.before
    [
      Case.new(name: 'facts-missing', reason: 'no facts, which Puppet would compile without', exit: 1, last: 'facts',
               setup: ->(r) { r.manifest(GOOD).puppet_conf("facts_terminus = yaml\n") }, error: /no facts of node.example.net were found/),
      Case.new(name: 'facts-exit', reason: 'a custom fact that ends the process', exit: 3, last: 'facts', error: /ended the process with exit 3/,
               setup: lambda { |r|
                 r.manifest(GOOD).write('code/production/modules/m/lib/facter/bad.rb', "Facter.add(:bad) { setcode { exit 3 } }\n")
               }),
      Case.new(name: 'facts-node', reason: 'a node terminus (ENC) that fails', exit: 1, last: 'facts', error: /Could not run: .*enc/m,
               setup: lambda { |r|
                 enc = r.write('enc', "#!/bin/sh\necho no such node >&2\nexit 4\n", mode: 0o755)
                 r.manifest(GOOD).puppet_conf("node_terminus = exec\nexternal_nodes = #{enc}\n")
               }),
      Case.new(name: 'prerun', reason: 'a prerun command that fails', exit: 1, last: 'report', report: 'failed',
               setup: lambda { |r|
                 guard = r.write('guard', "#!/bin/sh\necho not today >&2\nexit 1\n", mode: 0o755)
                 r.manifest(GOOD).puppet_conf("prerun_command = #{guard}\n")
               }, error: /Could not run command from prerun_command: .*not today/m),
      Case.new(name: 'refused-certname', reason: 'puppet.conf names another node', exit: 64, last: 'settings',
               setup: ->(r) { r.manifest(GOOD).puppet_conf("certname = other.example.net\n") }, error: /puppet.conf names this node "other.example.net"/),
      Case.new(name: 'refused-hello', reason: 'the agent does not know the run', exit: 64, last: 'settings', error: /is not here \(refused\)/,
               setup: ->(r) { r.manifest(GOOD).agent.on('hello') { { ok: false, code: 'refused', error: "run #{r.run} is not here" } } }),
      Case.new(name: 'refused-code', reason: 'code that is not there', exit: 64, last: 'settings', setup: ->(_r) {}, order: { 'environment' => 'gone' },
               error: %r{code/gone does not exist}),
      Case.new(name: 'machinery', reason: 'a Puppet that cannot be loaded', exit: 1, last: 'settings',
               setup: ->(r) { r.write('broken/puppet.rb', "require 'semantic_puppet_gone'\n") && r.environment['RUBYLIB'] = r.path('broken') })
    ]
  end

  def self.applied
    failing = "exec { '/bin/false': }\n-> notify { 'after': }\nnotify { 'aside': }\n"
    [
      Case.new(name: 'changed', reason: 'a change', setup: ->(r) { r.manifest(GOOD) }, exit: 2, last: 'report', report: 'changed'),
      Case.new(name: 'unchanged', reason: 'nothing to do', setup: ->(r) { r.manifest("file { '/': ensure => directory }\n") },
               exit: 0, last: 'report', report: 'unchanged'),
      Case.new(name: 'failed-resources', reason: 'a resource fails, what depends on it is skipped, the rest is applied', exit: 6, last: 'report', report: 'failed',
               setup: ->(r) { r.manifest(failing) }, error: %r{'/bin/false' returned 1}, at: ['site.pp', 1]),
      Case.new(name: 'failed-deferred', reason: 'a Deferred value that fails: the rest of the catalog is not applied', exit: 1,
               last: Puppet.version.to_i < 8 ? 'convert' : 'report', report: Puppet.version.to_i < 8 ? nil : 'failed',
               setup: ->(r) { r.manifest("notify { 'a': message => Deferred('tutti::value', ['gone/away']) }\n") }, error: %r{no value "gone/away"}),
      Case.new(name: 'noop', reason: 'a noop run with a change pending', order: { 'mode' => 'noop' }, setup: ->(r) { r.manifest(GOOD) },
               exit: 0, last: 'report', report: 'unchanged'),
      Case.new(name: 'killed', reason: 'the process is killed while it applies: no done, no report', exit: nil, last: 'apply',
               setup: ->(r) { r.waiting_manifest.end_by('KILL') }),
      Case.new(name: 'terminated', reason: 'the process is asked to end while it applies', exit: 1, last: 'report', report: 'failed',
               setup: ->(r) { r.waiting_manifest.end_by('TERM') })
    ]
  end

  def self.waiting
    [
      Case.new(name: 'waiting-blocks', reason: 'blocks that were left out, and what requires one of them', exit: 4, last: 'report', report: 'failed',
               setup: ->(r) { r.manifest(BLOCKS) }, error: %r{waits for value "swift/rings"}, at: ['site.pp', 1]),
      Case.new(name: 'failed-blocks', reason: 'blocks that were left out, and another failure', exit: 4, last: 'report', report: 'failed',
               setup: ->(r) { r.manifest("#{BLOCKS}exec { '/bin/false': }\n") }, error: %r{'/bin/false' returned 1}, at: ['site.pp', 5]),
      Case.new(name: 'noop-blocks', reason: 'blocks that were left out of a noop run', order: { 'mode' => 'noop' }, exit: 0, last: 'report', report: 'unchanged',
               setup: ->(r) { r.manifest(BLOCKS) }),
      Case.new(name: 'compile-blocks', reason: 'blocks that were left out, and a compile that failed', exit: 1, last: 'compile',
               setup: ->(r) { r.manifest("#{BLOCKS}fail('no')\n") }, error: /no/, at: ['site.pp', 5])
    ]
  end

  def self.stopped
    [
      Case.new(name: 'gate-stop', reason: 'the gate answers stop', exit: 76, last: 'gate',
               setup: ->(r) { r.manifest(GOOD).agent.on('gate') { { ok: true, verdict: 'stop', reason: 'swift/rings changed while compiling' } } }),
      Case.new(name: 'gate-refused', reason: 'an export without a grant', exit: 76, last: 'gate',
               setup: lambda { |r|
                 r.manifest("@@notify { 'a': }\n").agent.on('gate') { { ok: false, code: 'refused', error: 'no grant to export Notify' } }
               }),
      Case.new(name: 'compile-only', reason: 'mode compile ends at the gate', order: { 'mode' => 'compile' }, setup: ->(r) { r.manifest(GOOD) },
               exit: 76, last: 'gate'),
      Case.new(name: 'locked', reason: 'another Puppet keeps the lock', exit: 75, last: 'lock', setup: ->(r) { r.manifest(GOOD).hold_lock }, error: /still holds/)
    ]
  end

  # Runs of `puppet agent`. Cases that need a Puppet Server are tested with a real one (e2e).
  def self.agents
    agent = { 'program' => 'agent', 'environment' => '', 'environmentpath' => '' }
    [
      Case.new(name: 'agent-disabled', reason: 'somebody has disabled Puppet on the node', order: agent, exit: 77, last: 'lock',
               setup: lambda { |r|
                 r.puppet_conf("certname = node.example.net\n").certificates.write('var/state/agent_disabled.lock', '{"disabled_message":"new kernel, ask jo"}')
               }),
      Case.new(name: 'agent-stranger', reason: 'no certificate of a Puppet Server: anybody could be it', order: agent, exit: 64, last: 'settings',
               setup: ->(r) { r.puppet_conf("certname = node.example.net\nserver = localhost\n") }, error: /no certificate of a Puppet Server yet/),
      Case.new(name: 'agent-broken', reason: 'certificates that are none', order: agent, exit: 1, last: 'lock', error: /Failed to parse CA certificates/,
               setup: ->(r) { r.puppet_conf("certname = node.example.net\nserver = localhost\nserverport = 1\n").certificates }),
      Case.new(name: 'agent-exclusive', reason: 'the job that has disabled Puppet runs; its certificates are none', exit: 1, last: 'lock',
               order: agent.merge('disabled_lockfile' => '/nonexistent/agent_disabled.lock'), error: /Failed to parse CA certificates/,
               setup: lambda { |r|
                 r.puppet_conf("certname = node.example.net\nserver = localhost\nserverport = 1\n").certificates
                  .write('var/state/agent_disabled.lock', '{"disabled_message":"Tutti job deploy-1"}')
               }),
      Case.new(name: 'agent-certname', reason: 'a certificate of another name than the node has', order: agent, exit: 64, last: 'settings',
               setup: ->(r) { r.puppet_conf("server = localhost\n") }, error: /puppet.conf names this node/)
    ]
  end
  # rubocop:enable Layout/LineLength
end
