# frozen_string_literal: true

require 'puppet_x/tutti/run'

# The Hiera level of Tutti (`lookup_key`). In a run it is injected as the first level of the global layer;
# outside of a run of Tutti it knows no key.
Puppet::Functions.create_function(:'tutti::hiera') do
  # @param key the key that Hiera looks up
  # @param _options the options of the level; there are none yet
  # @param context Hiera's context
  # @return the value of the key
  dispatch :lookup_key do
    param 'String[1]', :key
    param 'Hash[String[1], Any]', :_options
    param 'Puppet::LookupContext', :context
    return_type 'Any'
  end

  def lookup_key(key, _options, context)
    run = PuppetX::Tutti::Run.current
    return context.not_found if run.nil?

    # Puppet's recorder learns of every key but this one, which is looked up for every compile.
    run.keys.record(key) if key == 'lookup_options'
    return context.not_found unless run.hiera.key?(key)

    run.hiera[key]
  end
end
