# frozen_string_literal: true

require 'puppet_x/tutti/run'

# Reads a shared value. The answer stays the same during one run and is part of the run's record. When the value
# changes, this node runs again. A secret is Sensitive.
Puppet::Functions.create_function(:'tutti::value', Puppet::Functions::InternalFunction) do
  # @param key the path of the value
  # @return the value; if there is no value, the compile ends, and the run's outcome is `waiting`
  # @example
  #   $rings = tutti::value('swift/rings/object')
  dispatch :required do
    scope_param
    param 'Pattern[/\A[^\/\s]+(\/[^\/\s]+)*\z/]', :key
  end

  # @param key the path of the value
  # @param default the result while nobody has published the value
  # @return the value or the default
  # @example
  #   $rings = tutti::value('swift/rings/object', undef)
  dispatch :optional do
    scope_param
    param 'Pattern[/\A[^\/\s]+(\/[^\/\s]+)*\z/]', :key
    param 'Any', :default
  end

  def required(scope, key)
    answer = ask(scope, key)
    return answer.value if answer&.found

    missing = "tutti::value: there is no value #{key.inspect}"
    raise Puppet::Error, "#{missing} (this Puppet was not started by Tutti) and no default is given" if answer.nil?

    wait = PuppetX::Tutti::Waits.wait('value', key, PuppetX::Tutti::Position.of(scope))
    raise PuppetX::Tutti::Unanswered.new("#{missing} (nobody has published it) and no default is given", wait)
  end

  def optional(scope, key, default)
    answer = ask(scope, key)
    answer&.found ? answer.value : default
  end

  def ask(scope, key)
    run = PuppetX::Tutti::Run.current
    return answered(run.value(key, PuppetX::Tutti::Position.of(scope)), scope, key) if run

    PuppetX::Tutti::Run.warn_bare
    nil
  end

  # A default must not replace a secret that will come later.
  def answered(answer, scope, key)
    return answer unless answer.awaits

    wait = PuppetX::Tutti::Waits.wait('value', key, PuppetX::Tutti::Position.of(scope))
    raise PuppetX::Tutti::Unanswered.new("tutti::value: #{PuppetX::Tutti::Waits.secret(answer.awaits)}", wait)
  end
end
