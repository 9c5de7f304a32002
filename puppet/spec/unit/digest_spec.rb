# frozen_string_literal: true

require_relative '../spec_helper'
require 'puppet_x/tutti/catalog_digest'
require 'puppet_x/tutti/facts_digest'

RSpec.describe 'digests' do
  # Returns the digest of a compiled manifest. `change` gets the catalog before the digest is
  # computed.
  def digest(manifest, key: nil)
    environment = Puppet::Node::Environment.create(:production, [])
    Puppet.override(current_environment: environment, loaders: Puppet::Pops::Loaders.new(environment)) do
      Puppet[:code] = manifest
      node = Puppet::Node.new('n', environment: environment, facts: Puppet::Node::Facts.new('n', {}))
      catalog = Puppet::Parser::Compiler.compile(node)
      yield catalog if block_given?
      PuppetX::Tutti::CatalogDigest.of(catalog, key: key)
    end
  end

  # Settings are initialised once per process.
  before(:all) do
    Puppet.initialize_settings(['--confdir', '/nonexistent', '--vardir', '/nonexistent']) unless Puppet.settings.global_defaults_initialized?
  end

  base = "notify { 'a': message => 'x' }\nnotify { 'b': tag => ['t', 'u'], require => Notify['a'] }\n"
  it 'of a catalog do not count position, version, ids and the order of tags' do
    same = "\n\nnotify { 'b': tag => ['t', 'u'], require => Notify['a'] }\nnotify { 'a': message => 'x' }\n"
    other = digest(same) do |catalog|
      catalog.version = 7
      catalog.code_id = 'c'
      catalog.catalog_uuid = 'u'
    end
    expect(other).to eq(digest(base)).and(match(/\Asha256:\h{64}\z/))
  end

  {
    'a parameter' => base.sub("'x'", "'y'"),
    'the type of a parameter' => base.sub("'x'", '1'),
    'a tag' => base.sub("'u'", "'v'"),
    'a relation' => base.sub("require => Notify['a']", "before => Notify['a']"),
    'one more resource' => "#{base}notify { 'c': }",
    'an export' => "#{base}@@notify { 'c': }\nrealize Notify['c']",
    'noop' => base.sub("message => 'x'", "message => 'x', noop => true")
  }.each do |what, manifest|
    it("of a catalog count #{what}") { expect(digest(manifest)).not_to eq(digest(base)) }
  end

  it 'of a catalog count each invalid byte, also in a secret and in a key' do
    one, *others = ["\xE9", "\xE8", "\uFFFD"].map do |byte|
      digest("notify { 'a': message => 'x' }\nnotify { 'b': message => Sensitive('x') }\nnotify { 'c': message => {} }", key: 'k') do |catalog|
        catalog.resource('Notify[a]')[:message] = "caf#{byte}"
        catalog.resource('Notify[b]')[:message] = "caf#{byte}"
        catalog.resource('Notify[c]')[:message] = { "caf#{byte}" => 1 }
      end
    end
    expect(others).not_to include(one)
  end

  it 'of a catalog count the order of the keys of a hash, also in a secret' do
    hashes = ["{ 'x' => 1, 'y' => { 'v' => 2, 'w' => 3 } }", "{ 'x' => 1, 'y' => { 'w' => 3, 'v' => 2 } }"]
    ['%s', 'Sensitive(%s)'].each do |value|
      one, two = hashes.map { |hash| digest("notify { 'a': message => #{format(value, hash)} }", key: 'k') }
      expect(one).not_to eq(two)
    end
  end

  it 'of a catalog count a relation that only the graph knows' do
    inner = "class a { notify { 'n': } }\nclass b { %s a }\ninclude b\n"
    expect(digest(format(inner, 'contain'))).not_to eq(digest(format(inner, 'include')))
  end

  it 'of a catalog do not count what is virtual and never realised' do
    expect(digest("#{base}@notify { 'v': }\n@@notify { 'e': }")).to eq(digest(base))
  end

  it 'of a catalog count secrets by a keyed digest only' do
    one, two = %w[one two].map { |secret| "notify { 'a': message => Sensitive('#{secret}') }" }
    expect(digest(one)).to eq(digest(two))
    expect(digest(one, key: 'k')).not_to eq(digest(two, key: 'k'))
    expect(digest(one, key: 'k')).not_to eq(digest(one, key: 'l'))
    nested = %w[one two].map { |secret| digest("notify { 'a': message => ['#{secret}', Sensitive('#{secret}')] }", key: 'k') }
    expect(nested.uniq.length).to eq(2)
  end

  it 'of facts count each invalid byte' do
    one, other = ["\xE9", "\xE8"].map { |byte| PuppetX::Tutti::FactsDigest.of('role' => "caf#{byte}") }
    expect(one).not_to eq(other)
  end

  facts = { 'os' => { 'name' => 'Debian' }, 'processors' => { 'count' => 2, 'speed' => '2 GHz' }, 'memory' => { 'free' => 1 }, 'role' => 'a' }
  {
    'the order of facts' => [true, facts.to_a.reverse.to_h],
    'a volatile fact' => [true, facts.merge('memory' => { 'free' => 2 })],
    'a volatile fact that comes and goes' => [true, facts.merge('system_uptime' => { 'seconds' => 1 })],
    'the speed of processors' => [true, facts.merge('processors' => { 'count' => 2, 'speed' => '3 GHz' })],
    'whether the run is a noop' => [true, facts.merge('clientnoop' => true)],
    'the count of processors' => [false, facts.merge('processors' => { 'count' => 3, 'speed' => '2 GHz' })],
    'a role' => [false, facts.merge('role' => 'b')],
    'the type of a fact' => [false, facts.merge('role' => :a, 'x' => 1)]
  }.each do |what, (equal, other)|
    it "of facts #{equal ? 'do not count' : 'count'} #{what}" do
      same = PuppetX::Tutti::FactsDigest.of(other) == PuppetX::Tutti::FactsDigest.of(facts)
      expect(same).to be(equal)
    end
  end
end
