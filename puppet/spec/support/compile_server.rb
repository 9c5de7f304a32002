# frozen_string_literal: true

# A process that compiles as a Puppet Server does: compile_server.rb DIR. Each line that it reads is a request,
# [certname, transaction_uuid] as JSON, which is compiled in a thread of its own; what came of it is printed as a line.
require 'json'
require 'puppet'
require 'puppet/indirector/code'

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

# What PuppetDB's termini are to a Puppet Server: they answer from the file puppetdb.json, and note what they store.
module FakePuppetDB
  def save(request)
    File.open(File.join(ARGV.first, 'stored'), 'a') { |file| file.puts("#{self.class.indirection_name} #{request.key}") }
  end

  def find(_request)
    nil
  end

  def search(request)
    JSON.parse(File.read(File.join(ARGV.first, 'puppetdb.json'))).map do |node, type, title, parameters|
      given = parameters.map { |name, value| Puppet::Parser::Resource::Param.new(name: name.to_sym, value: value) }
      resource = Puppet::Parser::Resource.new(type, title, parameters: given, scope: request.options[:scope])
      resource.tap { resource.collector_id = [node, type, title].join('|') }
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

def compile(name, uuid)
  environment = Puppet.lookup(:environments).get!('production')
  Puppet.override(current_environment: environment, trusted_information: Puppet::Context::TrustedInformation.new('remote', name, {})) do
    facts = Puppet::Node::Facts.new(name, 'networking' => {})
    came(Puppet::Resource::Catalog.indirection.find(name, facts: facts, facts_format: 'application/json', environment: environment,
                                                          transaction_uuid: uuid))
  end
rescue StandardError => e
  { 'error' => e.message }
end

$stdout.sync = true
$stdin.each_line.map do |line|
  Thread.new { puts JSON.generate(compile(*JSON.parse(line))) }
end.each(&:join)
