# frozen_string_literal: true

# This process compiles like a Puppet Server: compile_server.rb DIR. Each input line is a request, [certname,
# transaction_uuid] as JSON. A separate thread compiles the request and prints the result as one line. If the request
# has a third element, this is a number: the thread repeats the compile so many times with different uuids, and prints
# all results as one line.
require 'json'
require 'monitor'
require 'puppet'
require 'puppet/indirector/code'

# Puppet uses locks only on JRuby (puppet/concurrent). Without these locks, loading one type or function in two
# threads at the same time fails. Here one lock replaces all locks of Puppet.
module Locked
  LOCK = Monitor.new

  # Wraps all methods that the class or module has at this moment.
  def self.all_of(owner)
    names = owner.instance_methods(false) + owner.private_instance_methods(false) - [:initialize]
    owner.prepend(Module.new { names.each { |name| define_method(name) { |*args, **options, &block| LOCK.synchronize { super(*args, **options, &block) } } } })
  end
end
[Puppet::Concurrent::Lock, Puppet::Util::Autoload, Puppet::Util::Autoload.singleton_class, Puppet::Environments::Cached]
  .each { |owner| Locked.all_of(owner) }

dir = ARGV.first
Puppet.settings.preferred_run_mode = :server
Puppet.initialize_settings(['--confdir', dir, '--vardir', "#{dir}/var", '--environmentpath', "#{dir}/environments",
                            '--storeconfigs', '--storeconfigs_backend', 'tutti', '--hiera_config', "#{dir}/hiera.yaml",
                            '--basemodulepath', "#{dir}/modules", '--logdest', "#{dir}/log"])
defaults = Puppet::Settings.app_defaults_for_run_mode(Puppet::Util::RunMode[:server])
Puppet.settings.initialize_app_defaults(defaults.merge(name: 'server', facts_terminus: 'json'))
Puppet::ApplicationSupport.push_application_context(Puppet::Util::RunMode[:server])
Puppet::Node.indirection.terminus_class = :plain
Puppet::Node::Facts.indirection.terminus_class = :json
Puppet::Resource::Catalog.indirection.terminus_class = :compiler

# FakePuppetDB replaces PuppetDB's termini and library. The fake PuppetDB answers from the file puppetdb.json. The
# fake PuppetDB records stored data in the file `stored`, and questions in the file `asked`.
module FakePuppetDB
  def self.note(file, line)
    File.open(File.join(ARGV.first, file), 'a') { |out| out.puts(line) }
  end

  def self.answer(name)
    JSON.parse(File.read(File.join(ARGV.first, 'puppetdb.json'))).fetch(name)
  end

  def save(request)
    uuid = request.instance.respond_to?(:catalog_uuid) ? request.instance.catalog_uuid : ''
    FakePuppetDB.note('stored', "#{self.class.indirection_name} #{request.key} #{uuid}")
  end

  def find(_request)
    nil
  end

  def search(request)
    FakePuppetDB.note('asked', "resources #{request.key}")
    FakePuppetDB.answer('resources').map do |node, type, title, parameters|
      given = parameters.map { |name, value| Puppet::Parser::Resource::Param.new(name: name.to_sym, value: value) }
      resource = Puppet::Parser::Resource.new(type, title, parameters: given, scope: request.options[:scope])
      resource.tap { resource.collector_id = [node, type, title].join('|') }
    end
  end
end

module Puppet
  module Util
    module Puppetdb
      def self.query_puppetdb(query)
        FakePuppetDB.note('asked', JSON.generate(query))
        FakePuppetDB.answer('catalogs')
      end
    end
  end
end

class Puppet::Resource::Puppetdb < Puppet::Indirector::Code # rubocop:disable Style/ClassAndModuleChildren
  desc 'PuppetDB'
  include FakePuppetDB
end

class Puppet::Resource::Catalog::Puppetdb < Puppet::Indirector::Code # rubocop:disable Style/ClassAndModuleChildren
  desc 'PuppetDB'
  include FakePuppetDB
end

class Puppet::Node::Facts::Puppetdb < Puppet::Indirector::Code # rubocop:disable Style/ClassAndModuleChildren
  desc 'PuppetDB'
  include FakePuppetDB
end

def came(catalog)
  { 'files' => catalog.resources.select { |resource| resource.type == 'File' }.to_h { |resource| [resource.title, resource[:content]] } }
end

# Compiles as for a comparison of environments: nobody stores or applies the catalog.
def look(name, environment, facts)
  require 'puppet_x/tutti/compiles'
  PuppetX::Tutti::Compiles.install
  node = Puppet::Node.indirection.find(name, facts: facts, environment: environment)
  Puppet.override({ tutti_looks: true }, 'a look') { came(Puppet::Parser::Compiler.compile(node)) }
end

def compile(name, uuid)
  environment = Puppet.lookup(:environments).get!('production')
  Puppet.override(current_environment: environment, trusted_information: Puppet::Context::TrustedInformation.new('remote', name, {})) do
    facts = Puppet::Node::Facts.new(name, 'networking' => {})
    return look(name, environment, facts) if uuid == 'looks'

    came(Puppet::Resource::Catalog.indirection.find(name, facts: facts, facts_format: 'application/json', environment: environment,
                                                          transaction_uuid: uuid))
  end
rescue StandardError => e
  { 'error' => e.message }
end

def rounds(name, uuid, count)
  { 'node' => name, 'came' => Array.new(count) { |i| compile(name, "#{uuid}-#{i}") } }
end

$stdout.sync = true
$stdin.each_line.map do |line|
  request = JSON.parse(line)
  Thread.new { puts JSON.generate(request.length > 2 ? rounds(*request) : compile(*request)) }
end.each(&:join)
