# frozen_string_literal: true

require 'puppet_x/tutti/run'

Puppet::Type.newtype(:tutti_value) do
  @doc = <<-DOC
    @summary Publishes a shared value when it is applied.

    @example A value with its type kept
      tutti_value { 'swift/proxy/port':
        value => 8080,
      }

    @example The digest of a file that this node made
      tutti_value { 'swift/rings/object':
        source_file => '/etc/swift/object.ring.gz',
      }

    @example A password that this node made, for the nodes of a group
      tutti_value { 'db/password':
        value => Sensitive($password),
        for   => 'web',
      }

    The file resource is required automatically. A Sensitive value is sealed by the agent to the nodes that it is `for`; nobody
    else can read it, and what reads it gets a Sensitive. Without `value` and `source_file` the
    resource needs `ensure => absent`. Outside of a run of Tutti nothing is published.
  DOC

  newparam(:key, namevar: true) do
    desc 'The path of the value: words with slashes between them, such as `swift/rings/object`.'

    validate do |value|
      unless value.is_a?(String) && value.match?(%r{\A[^/\s]+(/[^/\s]+)*\z})
        raise ArgumentError, "#{value.inspect} is not a key: words with single slashes between them are expected"
      end
    end
  end

  # This is a parameter, because properties lose the types of JSON: ['a'] becomes 'a', and Puppet ignores [] and false.
  newparam(:value) do
    desc 'The value: any data of the Puppet language but undef; integers, booleans, lists and hashes keep their types.'

    validate do |value|
      found = resource.class.foreign(value)
      raise ArgumentError, "value is #{found}; only strings, numbers, booleans, lists and hashes can be shared" if found
    end
  end

  newparam(:source_file) do
    desc 'Publishes the sha256 digest of this file, as it is when the resource is applied, instead of a value.'

    validate do |value|
      raise ArgumentError, "source_file #{value.inspect} is not an absolute path" unless Puppet::Util.absolute_path?(value)
    end
  end

  newparam(:for, array_matching: :all) do
    desc 'Whom a Sensitive value is sealed to: names of groups, or `node:NAME`; one, or a list.'

    validate do |value|
      unless [value].flatten.all? { |target| target.is_a?(String) && target.match?(/\A((group|node):)?[^\s:]+\z/) }
        raise ArgumentError, "for #{value.inspect}: the name of a group, or node:NAME, is expected"
      end
    end

    munge { |value| [value].flatten.map { |target| target.include?(':') ? target : "group:#{target}" }.sort.uniq }
  end

  # Puppet compares only this property with its state in the previous run. If the property were idempotent,
  # each new value would count as corrective.
  newproperty(:ensure, idempotent: false) do
    desc 'Whether this node publishes the value.'

    newvalue(:present) { provider.publish }
    newvalue(:absent) { provider.withdraw }
    defaultto :present

    def retrieve
      provider.state
    end

    def change_to_s(current, desired)
      return 'withdrawn' if desired == :absent

      current == :outdated ? 'published a new value' : 'published'
    end
  end

  autorequire(:file) do
    [self[:source_file]].compact
  end

  validate do
    given = %i[value source_file].reject { |name| parameter(name).nil? }
    raise Puppet::Error, 'value and source_file exclude each other' if given.length > 1
    next unless given.empty? && self[:ensure] == :present

    raise Puppet::Error, 'nothing to publish: give value or source_file (a shared value is never undef)'
  end

  # Puppet passes the clear value of a Sensitive parameter. A separate list names the parameters that were Sensitive.
  def set_sensitive_parameters(names) # rubocop:disable Naming/AccessorMethodName
    if deferred?(:value)
      raise Puppet::ResourceError.new("#{ref}: the value is Deferred: #{PuppetX::Tutti::Run::LAZY}, or publish what the manifest has", file, line)
    end

    @secret = names.map(&:to_sym).include?(:value)
    if @secret && self[:for].nil?
      raise Puppet::ResourceError.new("#{ref}: the value is Sensitive: say whom it is for, like `for => 'web'`; " \
                                      'without it, it would be readable by others and is not published', file, line)
    end
    raise Puppet::ResourceError.new("#{ref}: `for` seals a value that is Sensitive, and this one is not", file, line) if self[:for] && !@secret

    super(names.reject { |name| name.to_sym == :value })
  end

  def deferred?(name)
    defined?(Puppet::Pops::Evaluator::DeferredValue) && parameter(name)&.value.instance_of?(Puppet::Pops::Evaluator::DeferredValue)
  end

  # Returns whether the value must be sealed.
  def secret?
    @secret ? true : false
  end

  # @return [String, nil] the first thing in a value that is not data
  def self.foreign(value)
    case value
    when String, Integer, Float, true, false, nil then nil
    when Array then value.map { |item| foreign(item) }.compact.first
    when Hash
      key = value.keys.find { |name| !name.is_a?(String) }
      key ? "a hash with the key #{key.inspect}" : foreign(value.values)
    when Puppet::Pops::Types::PSensitiveType::Sensitive then 'or contains a Sensitive'
    else "or contains a #{value.class.name.split('::').last}"
    end
  end
end
