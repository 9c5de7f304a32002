# frozen_string_literal: true

require_relative '../spec_helper'
require 'fileutils'
require 'json'
require 'open3'
require 'rbconfig'
require 'tmpdir'

# Each example checks code in a process of its own, as `tutti code check` does.
RSpec.describe 'puppet-tutti --check' do
  around { |example| Dir.mktmpdir { |dir| (@dir = dir) && example.run } }

  def write(files)
    { 'environment.conf' => '' }.merge(files).each do |name, content|
      file = File.join(@dir, 'code', name)
      FileUtils.mkdir_p(File.dirname(file))
      File.binwrite(file, content)
    end
  end

  def check(files, *more)
    write(files)
    own = File.join(@dir, 'own', 'tutti')
    FileUtils.mkdir_p(own)
    %w[bin lib manifests metadata.json].each { |part| FileUtils.cp_r(File.join(File.expand_path('../..', __dir__), part), own) }
    out, said, status = Open3.capture3(RbConfig.ruby, File.join(own, 'bin', 'puppet-tutti'), '--check', File.join(@dir, 'code'), *more)
    raise said unless status.success?

    out.lines.map { |line| JSON.parse(line) }.map { |p| "#{p['level']} #{p['file']}:#{p['line']}: #{p['message']}" }
  end

  let(:metadata) do
    lambda do |name, version, *needs|
      JSON.generate(name: name, version: version, author: 'a', license: 'l', summary: 's', source: 's',
                    dependencies: needs.map { |n, v| { name: n, version_requirement: v } })
    end
  end

  it 'has nothing to say about good code' do
    expect(
      check(
        'manifests/site.pp' => "node default {\n include web\n include tutti::agent\n tutti_value { 'x': value => 1 }\n include $facts['role']\n}\n",
        'modules/web/manifests/init.pp' => "class web {\n web::vhost { 'a': }\n file { '/x': ensure => file }\n}\n",
        'modules/web/manifests/vhost.pp' => "define web::vhost { notify { $title: } }\n",
        'modules/web/templates/a.epp' => "<% if true { %>x<% } %>\n", 'modules/web/templates/a.erb' => "<% if true -%>\nx\n<% end -%>\n",
        'modules/web/metadata.json' => metadata.call('me-web', '1.0.0', %w[me/base >=1.0.0]),
        'modules/base/metadata.json' => metadata.call('me-base', '1.2.0'), 'data/common.yaml' => "a: 1\n"
      )
    ).to eq([])
  end

  it 'finds classes in a wrong file' do
    expect(check('manifests/site.pp' => '', 'modules/web/manifests/other.pp' => "class web::ssl { }\n")).to contain_exactly(
      a_string_matching(%r{\Aerror modules/web/manifests/other.pp:1: Unacceptable location. The name 'web::ssl' is unacceptable in file})
    )
  end

  it 'finds mistakes in files' do
    found = check(
      'manifests/site.pp' => "node default {\n", 'modules/web/templates/a.epp' => '<% if true { %>x', 'modules/web/templates/a.erb' => "x\n<% if true %>\n",
      'modules/web/lib/facter/x.rb' => "def x(\n", 'data/common.yaml' => "a: 1\n b: 2\n", 'modules/web/metadata.json' => '{"name":',
      'modules/web/manifests/utf.pp' => "# \xff\n"
    )
    expect(found.map { |text| text[/\Aerror ([^:]+):/, 1] }.uniq).to match_array(
      %w[data/common.yaml manifests/site.pp modules/web/lib/facter/x.rb modules/web/manifests/utf.pp modules/web/metadata.json modules/web/templates/a.epp
         modules/web/templates/a.erb]
    )
    expect(found).to include(a_string_starting_with('error data/common.yaml:2: '), a_string_starting_with('error modules/web/lib/facter/x.rb:'))
  end

  it 'finds modules that are missing or have another version' do
    found = check(
      'manifests/site.pp' => '', 'modules/web/metadata.json' => metadata.call('me-web', '1.0.0', ['me/base', '>= 2.0.0'], ['you/gone', '>= 1.0.0']),
      'modules/base/metadata.json' => metadata.call('me-base', '1.2.0')
    )
    expect(found).to contain_exactly(
      'error modules/web/metadata.json:: module web needs you/gone >= 1.0.0, which is not there',
      a_string_starting_with('warning modules/web/metadata.json:: module web needs me/base >= 2.0.0, and there is')
    )
  end

  it 'finds names that nothing defines' do
    found = check(
      'manifests/site.pp' => "include gone\nclass { 'web::ssl': }\nwibble { 'x': }\ncontain(['web', 'other::x'])\n",
      'modules/web/manifests/init.pp' => "class web inherits web::base {\n include optional::x\n web::thing { 'a': }\n}\n"
    )
    expect(found).to eq(
      ['error manifests/site.pp:1: nothing defines the class gone; the module gone is not there',
       'error manifests/site.pp:2: nothing defines the class web::ssl',
       'error manifests/site.pp:3: nothing defines the resource type wibble',
       'error manifests/site.pp:4: nothing defines the class other::x; the module other is not there',
       'error modules/web/manifests/init.pp:1: nothing defines the class web::base',
       'warning modules/web/manifests/init.pp:2: nothing defines the class optional::x; the module optional is not there',
       'error modules/web/manifests/init.pp:3: nothing defines the resource type web::thing']
    )
  end

  it 'knows the modules that the nodes have, and says nothing about them' do
    write('manifests/site.pp' => "include base\n")
    more = File.join(@dir, 'more', 'base', 'manifests')
    FileUtils.mkdir_p(more)
    File.write(File.join(more, 'init.pp'), "class base { include base::gone }\n")
    expect(check({}, File.join(@dir, 'more'))).to eq([])
  end

  it 'runs no code of the environment, except for types' do
    mark = File.join(@dir, 'ran')
    code = "File.write('#{mark}', 'x')\n"
    check('manifests/site.pp' => "notify { generate('/bin/touch', '#{mark}'): }\n", 'modules/web/lib/facter/x.rb' => code,
          'modules/web/lib/puppet/functions/x.rb' => code, 'modules/web/templates/a.erb' => "<% #{code.strip} %>")
    expect(File.exist?(mark)).to be(false)
  end

  it 'says which metadata are missing, because Puppet then sees no dependencies' do
    short = JSON.generate(name: 'me-web', version: '1.0.0', dependencies: [{ name: 'you/gone', version_requirement: '>= 1.0.0' }])
    expect(check('manifests/site.pp' => '', 'modules/web/metadata.json' => short)).to eq [
      'warning modules/web/metadata.json:: the metadata lack author, source, license, so Puppet does not see what the module needs'
    ]
  end
end
