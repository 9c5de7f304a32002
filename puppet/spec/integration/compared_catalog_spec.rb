# frozen_string_literal: true

require_relative '../spec_helper'
require 'json'

# A compile for a diff leaves its catalog in the run's directory, without secrets.
RSpec.describe 'the catalog of a compile for a diff' do
  # Returns the text of the file, or nil if there is none.
  def compiled(manifest, diff: true, mode: 'compile')
    run = RealRun.new(mode: mode)
    run.order.merge!('mode' => mode, 'diff' => diff, 'digest_key' => 'a' * 32)
    run.agent.sealed = { 'db/root' => 'opened-secret' }
    run.write('code/production/modules/m/files/one', '1')
    yield run if block_given?
    run.manifest(manifest).call
    raise run.said unless run.agent.asked('gate').length == 1

    file = run.path("#{run.run}/catalog-diff.json")
    File.read(file) if File.exist?(file)
  ensure
    run&.clean
  end

  manifest = <<~'PUPPET'
    file { '/one': source => 'puppet:///modules/m/one' }
    file { '/clear': content => "a line\n" }
    file { '/sensitive': content => Sensitive('never-shown-1') }
    file { '/unshown': content => 'never-shown-2', show_diff => false }
    notify { 'opened': message => "x ${unwrap(tutti::value('db/root'))}" }
    user { 'u': password => 'never-shown-3' }
    @@notify { 'exported': message => 'e' }
    @notify { 'virtual': }
  PUPPET

  let(:text) { compiled(manifest) }
  let(:catalog) { JSON.parse(text) }

  it 'has the parameters, the content of sources and the exports' do
    expect(catalog['resources']['File[/clear]']['parameters']).to include('content' => "a line\n")
    expect(catalog['sources']).to match('puppet:///modules/m/one' => /\Asha256:/)
    expect(catalog['resources']['Notify[exported]']).to include('exported' => true)
    expect(catalog['resources']).not_to have_key('Notify[virtual]')
    expect(catalog['edges']).to include('Class[main] -> File[/one]')
    expect(catalog['lib']).to match(/\Asha256:/)
  end

  it 'has a keyed digest in place of each secret' do
    expect(text).not_to match(/never-shown|opened-secret/)
    hidden = catalog['resources'].transform_values { |resource| resource['hidden'].keys }.reject { |_, names| names.empty? }
    expect(hidden).to eq('File[/sensitive]' => ['content'], 'File[/unshown]' => ['content'], 'Notify[opened]' => ['message'], 'User[u]' => ['password'])
    again = JSON.parse(compiled(manifest.sub('never-shown-1', 'never-shown-9')))['resources']
    changed = again.reject { |name, resource| resource['hidden'] == catalog['resources'][name]['hidden'] }.keys
    expect(changed).to eq(['File[/sensitive]'])
  end

  it 'has no secret in tags, numbers and other objects' do
    leaky = <<~'PUPPET'
      $pw = unwrap(tutti::value('db/root'))
      $pin = unwrap(tutti::value('db/pin'))
      define d($a, $b, $c, $root_pwd) { notify { "in ${title}": } }
      d { "x-${pw}": a => $pin, b => Binary.new($pw, '%s'), c => URI("http://u:${pw}@h/"), root_pwd => 'opened-secret-2', tag => $pw.capitalize }
    PUPPET
    text = compiled(leaky) { |run| run.agent.sealed['db/pin'] = 71_829_345 }
    resource = JSON.parse(text)['resources']['D[x-[redacted]]']
    expect(resource['hidden'].keys).to include('a', 'b', 'c', 'root_pwd', 'tag')
    expect(resource['tags']).to include('[redacted]')
    expect(text.downcase).not_to match(/opened-secret|71829345|#{['opened-secret'].pack('m0').downcase}/)
  end

  it 'does not know the content of a source that only the node knows' do
    plain = "file { '/one': source => 'puppet:///modules/m/one' }\nnotify { 'd': message => Deferred('sprintf', ['x']) }\n"
    expect(JSON.parse(compiled(plain))['sources']).to match('puppet:///modules/m/one' => /\Asha256:/)
    expect(JSON.parse(compiled("file { '/one': source => [Deferred('sprintf', ['puppet:///modules/m/one'])] }"))['sources']).to be_nil
  end

  it 'is not written by other runs' do
    expect(compiled('notify { "x": }', diff: false)).to be_nil
    expect(compiled('notify { "x": }', mode: 'noop')).to be_nil
  end
end
