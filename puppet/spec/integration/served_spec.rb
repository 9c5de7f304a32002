# frozen_string_literal: true

require_relative '../spec_helper'
require_relative '../support/certificates'
require 'fileutils'
require 'json'
require 'open3'
require 'puppet/ssl/oids'
require 'rbconfig'
require 'tmpdir'

# Each example compiles in a process of its own, from the directories of a Puppet Server that is not running.
RSpec.describe 'puppet-tutti --served' do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  def write(name, content)
    file = File.join(@dir, name)
    FileUtils.mkdir_p(File.dirname(file))
    File.binwrite(file, content)
    file
  end

  def server(manifests)
    names = %w[conf code var log run].map { |name| "    server-#{name}-dir: #{File.join(@dir, name)}" }
    @configuration = write('puppetserver.conf', "jruby-puppet: {\n    # server-conf-dir: /elsewhere\n#{names.join("\n")}\n}\n")
    write('conf/puppet.conf', "[server]\ncadir = #{@dir}/ca\n#{@more}")
    manifests.each { |environment, text| write("code/environments/#{environment}/manifests/site.pp", text) }
  end

  def node(name, facts)
    write("var/server_data/facts/#{name}.json", JSON.generate(name: name, values: facts.merge(clientcert: name), timestamp: Time.now.to_s))
    pair = Certificates.make(name)
    value = OpenSSL::ASN1::UTF8String.new('web').to_der
    pair.certificate.add_extension(OpenSSL::X509::Extension.new('1.3.6.1.4.1.34380.1.1.13', value))
    pair.certificate.sign(pair.key, OpenSSL::Digest.new('SHA256'))
    write("ca/signed/#{name}.pem", pair.certificate.to_pem)
  end

  def tree
    Dir.glob(File.join(@dir, '**', '*'), File::FNM_DOTMATCH).sort.map { |file| [file, File.lstat(file).mode, File.lstat(file).mtime] }
  end

  def compile(environment, *nodes)
    before = tree
    script = "require 'puppet_x/tutti/served_catalogs'
      class PuppetX::Tutti::ServedCatalogs; remove_const(:CONFIGURATIONS); CONFIGURATIONS = [#{@configuration.inspect}].freeze; end
      PuppetX::Tutti::ServedCatalogs.start"
    input = JSON.generate(environment: environment, key: 'k' * 32, nodes: nodes)
    out, @said, @status = Open3.capture3({ 'HOME' => Dir.tmpdir }, RbConfig.ruby, '-I', File.expand_path('../../lib', __dir__), '-e', script, stdin_data: input)
    expect(tree).to eq(before)
    out.lines.to_h { |line| JSON.parse(line).then { |found| [found['node'], found] } }
  end

  def contents(found)
    found['catalog']['resources'].filter_map { |ref, resource| "#{ref} #{resource['parameters']['message']}" if ref.start_with?('Notify[') }
  end

  it 'compiles with the facts, the trusted facts and the environment that the Puppet Server would use' do
    message = '"$role ${trusted["extensions"]["pp_role"]} $environment ${server_facts["environment"]}"'
    server('production' => "notify { $trusted['certname']: message => #{message} }", 'feature_x' => 'notify { $trusted["certname"]: message => "$role x" }')
    node('a', role: 'one')
    node('b', role: 'two')
    found = compile('production', 'a', 'b')
    expect(found.values.map { |one| contents(one) }).to eq [['Notify[a] one web production production'], ['Notify[b] two web production production']]
    expect(contents(compile('feature_x', 'b')['b'])).to eq ['Notify[b] two x']
  end

  it 'shows exports, and replaces secrets by digests with the key' do
    server('production' => "@@notify { 'out': message => 'e' } notify { 'in': message => Sensitive('geheim') } user { 'u': password => 'geheim' }")
    node('a', {})
    found = compile('production', 'a')['a']['catalog']
    expect(found['resources']['Notify[out]']).to include('exported' => true)
    expect(found['resources']['Notify[in]']['hidden']['message']).to match(/\A\h{64}\z/)
    expect(JSON.generate(found)).not_to include('geheim')
  end

  it 'takes the ENC of the Puppet Server for classes, but compiles the environment that was asked for' do
    enc = write('enc', "#!/bin/sh\nprintf 'classes: {c: {}}\\nenvironment: other\\nparameters: {p: %s}\\n' \"$1\"\n")
    File.chmod(0o755, enc)
    @more = "node_terminus = exec\nexternal_nodes = #{enc}\n"
    server('production' => 'class c { notify { "c": message => "$p $environment" } }', 'other' => '')
    node('a', {})
    expect(contents(compile('production', 'a')['a'])).to eq ['Notify[c] a production']
  end

  it 'says why a node does not compile, and goes on with the next one' do
    server('production' => 'node "a" { fail("not today") } node "c" { inline_template("<% exit 0 %>") } node default { notify { "x": } }')
    %w[a b c].each { |name| node(name, {}) }
    write('var/server_data/facts/stranger.json', JSON.generate(name: 'stranger', values: { x: 1 }))
    found = compile('production', 'a', 'nobody', 'stranger', 'c', 'b')
    expect(found['a']['failed']).to include('not today')
    expect(found['nobody']['failed']).to eq 'this Puppet Server has no facts of the node'
    expect(found['stranger']['failed']).to start_with("nobody knows the node's trusted facts here")
    expect(found['c']['failed']).to eq 'the code called exit'
    expect(contents(found['b'])).to eq ['Notify[x] ']
  end

  it 'does not compile an environment without a manifest, and no environment that is not there' do
    server('production' => '')
    node('a', {})
    FileUtils.mkdir_p(File.join(@dir, 'code/environments/empty'))
    expect(compile('empty', 'a')['a']['failed']).to include('has no manifest')
    expect(compile('nowhere', 'a')).to be_empty
    expect([@status.exitstatus, @said]).to eq [86, "this Puppet Server has no environment nowhere\n"]
  end

  it 'needs a Puppet Server' do
    @configuration = File.join(@dir, 'missing')
    expect(compile('production', 'a')).to be_empty
    expect(@said).to eq "this machine has no Puppet Server: there is no #{@configuration}\n"
  end
end
