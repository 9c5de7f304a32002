# frozen_string_literal: true

# Records what a node compiles for a diff, for a benchmark of the server:
#   ruby spec/record_catalog.rb MODULEPATH    writes ../internal/server/testdata/catalog.json.gz
# MODULEPATH is a directory with the modules below, for example of Debian's packages. The file has the hiera keys of the
# compile, and the catalog as the launcher writes it.
require 'facter'
require 'puppet'
require 'zlib'
require_relative 'support/real_run'

TARGET = File.expand_path('../../internal/server/testdata/catalog.json.gz', __dir__)
MODULES = %w[apache apt concat haproxy mysql ntp rsync stdlib].freeze

def manifest
  sites = (1..12).map { |i| "apache::vhost { 'site-#{i}.example.net': port => 80, docroot => '/srv/www/#{i}', serveraliases => ['www-#{i}.example.net'] }" }
  listeners = (1..5).map { |i| "haproxy::listen { 'pool-#{i}': ipaddress => '*', ports => '#{8000 + i}', options => { 'timeout' => 'client 50s' } }" }
  <<~PUPPET
    class { 'ntp': servers => ['ntp-1.example.net', 'ntp-2.example.net'] }
    class { ['apt', 'rsync', 'mysql::client']: }
    class { 'apache': default_vhost => false, mpm_module => 'event' }
    class { 'apache::mod::proxy': }
    class { 'haproxy': service_manage => false }
    #{sites.join("\n")}
    #{listeners.join("\n")}
  PUPPET
end

# Replaces the names of the run's directory and of this machine.
def portable(text, run)
  names = Facter.value('networking').values_at('fqdn', 'hostname').compact
  text.gsub(run.root, '/srv/tutti').gsub(/\b(?:#{Regexp.union(names).source})\b/, 'node')
end

# Compiles a manifest, and returns its catalog and its hiera keys.
def compiled(manifest, modules)
  run = RealRun.new(mode: 'compile')
  run.order.merge!('diff' => true, 'digest_key' => 'a' * 32)
  MODULES.each { |name| File.symlink(Dir.glob("#{modules}/{puppetlabs-,}#{name}").fetch(0), run.path("module/#{name}")) }
  run.write('conf/hiera.yaml', "version: 5\nhierarchy:\n- {name: t, lookup_key: tutti::hiera}\n")
  run.manifest(manifest).call
  gate = run.agent.asked('gate').fetch(0) { raise run.said }
  catalog = portable(File.read(run.path("#{run.run}/catalog-diff.json")), run)
  [JSON.parse(catalog).except('run'), gate['keys'].map { |key| key.slice('key', 'found') }]
ensure
  run&.clean
end

catalog, keys = compiled(manifest, ARGV.fetch(0))
Zlib::GzipWriter.open(TARGET, Zlib::BEST_COMPRESSION) { |file| file.write(JSON.generate('keys' => keys, 'catalog' => catalog)) }
puts "#{catalog['resources'].length} resources, #{keys.length} keys, #{File.size(TARGET)} bytes"
