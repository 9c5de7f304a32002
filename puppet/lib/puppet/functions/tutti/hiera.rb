# frozen_string_literal: true

require 'puppet_x/tutti/run'

# The Hiera level of Tutti (`lookup_key`). In a run it is injected as the first level of the global layer, where it has no
# options. A hiera.yaml of the code may name it once more, to say which keys nobody below may answer.
# Outside of a run of Tutti it knows no key and requires none.
Puppet::Functions.create_function(:'tutti::hiera') do
  # @param key the key that Hiera looks up
  # @param options the options of the level: `required`, a list of regular expressions; a key that one of them matches and
  #   that Tutti does not have ends the compile, and the run's outcome is `waiting`
  # @param context Hiera's context
  # @return the value of the key
  dispatch :lookup_key do
    param 'String[1]', :key
    param 'Hash[String[1], Any]', :options
    param 'Puppet::LookupContext', :context
    return_type 'Any'
  end

  def lookup_key(key, options, context)
    run = PuppetX::Tutti::Run.current
    return context.not_found if run.nil?

    # Puppet's recorder learns of every key but this one, which is looked up for every compile.
    run.keys.record(key) if key == 'lookup_options'
    return run.hiera[key] if run.hiera.key?(key)

    raise Puppet::Error, "tutti::hiera: #{run.closed(key)}" if run.closed(key)
    raise awaited(run, key) if key != 'lookup_options' && run.awaited(key)

    raise unanswered(run, key) if key != 'lookup_options' && required(options).any? { |pattern| pattern.match?(key) }

    context.not_found
  end

  def unanswered(run, key)
    wait = PuppetX::Tutti::Waits.wait('hiera', key, run.keys.position(key))
    PuppetX::Tutti::Unanswered.new("tutti::hiera: there is no value for the key #{key.inspect} (nobody has set it), which the level requires", wait)
  end

  # Nobody below answers in its place: a default is no password.
  def awaited(run, key)
    wait = PuppetX::Tutti::Waits.wait('hiera', key, run.keys.position(key))
    PuppetX::Tutti::Unanswered.new("tutti::hiera: #{PuppetX::Tutti::Waits.secret(run.awaited(key))}", wait)
  end

  def required(options)
    unknown = options.keys - ['required']
    raise ArgumentError, "tutti::hiera: unknown options #{unknown.join(', ')}; there is `required` only" unless unknown.empty?

    patterns = options.fetch('required', [])
    raise ArgumentError, 'tutti::hiera: `required` is a list of regular expressions' unless patterns.is_a?(Array) && patterns.all?(String)

    patterns.map { |pattern| Regexp.new(pattern) }
  rescue RegexpError => e
    raise ArgumentError, "tutti::hiera: `required`: #{e.message}"
  end
end
