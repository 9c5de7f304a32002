# frozen_string_literal: true

require 'puppet_x/tutti/left_out'
require 'puppet_x/tutti/run'

# Evaluates a block with shared values if all of them exist. If a value is missing, the block is
# left out of the catalog, Puppet applies the rest, and the run ends `waiting`.
Puppet::Functions.create_function(:'tutti::with', Puppet::Functions::InternalFunction) do
  # @param keys the paths of the values
  # @param block gets the values, in the order of the keys
  # @return what the block returns; undef if it was left out
  # @example
  #   tutti::with('db/host', 'db/port') |$host, $port| {
  #     file { '/etc/app/db': content => "${host}:${port}\n" }
  #   }
  dispatch :with do
    scope_param
    required_repeated_param 'Pattern[/\A[^\/\s]+(\/[^\/\s]+)*\z/]', :keys
    block_param
  end

  def with(scope, *keys, &block)
    check(block.arity, keys.length)
    run = PuppetX::Tutti::Run.current
    PuppetX::Tutti::Run.warn_bare if run.nil?
    at = PuppetX::Tutti::Position.of(scope)
    answers = keys.map { |key| run&.value(key, at) }
    return yield(*answers.map(&:value)) if answers.all? { |answer| answer&.found }

    keys.zip(answers).reject { |_, answer| answer&.found }.each do |key, _|
      run&.waits&.note(PuppetX::Tutti::Waits.wait('value', key, at))
      PuppetX::Tutti::LeftOut.declare(scope, key, "value #{key.inspect}")
    end
    nil
  end

  # Without this check, Puppet would call a block with too many values and give no message.
  def check(arity, count)
    least = arity.negative? ? -arity - 1 : arity
    return if count == least || (arity.negative? && count > least)

    raise ArgumentError, "tutti::with: the block takes #{least} values, of #{count} keys"
  end
end
