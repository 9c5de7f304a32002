# frozen_string_literal: true

require 'puppet_x/tutti/run'

# This is the Hiera level of Tutti (`lookup_key`). In a run the launcher adds the level, without options, as the first
# level of the global layer. A hiera.yaml in the code may name the level once more, to list keys that no lower level may
# answer. Outside of a run of Tutti the level has no keys and requires no keys.
Puppet::Functions.create_function(:'tutti::hiera') do
  # @param key the key that Hiera looks up
  # @param options the options of the level: `required`, a list of regular expressions. If a key matches one of these
  #   expressions and Tutti has no value for the key, the compile ends, and the run's outcome is `waiting`.
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

    # Puppet itself records every key except `lookup_options`, although Puppet looks up this key in
    # every compile.
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

  # No lower level may answer for a secret, because a default must not replace a password.
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
