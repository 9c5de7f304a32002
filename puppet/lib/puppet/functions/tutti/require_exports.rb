# frozen_string_literal: true

require 'puppet_x/tutti/left_out'
require 'puppet_x/tutti/run'

# Evaluates a block after other nodes export enough resources of a type. While there are fewer exports, the
# block is left out of the catalog, Puppet applies the rest, and the run ends `waiting`. The question is the
# same as the question of a collector `Type <<| |>>`.
Puppet::Functions.create_function(:'tutti::require_exports', Puppet::Functions::InternalFunction) do
  # @param type the resource type, as a word or by its name
  # @param at_least how many exports of other nodes are enough
  # @param block the block to evaluate
  # @return what the block returns; undef if it was left out
  # @example
  #   tutti::require_exports(Ring_object_device, 3) || {
  #     Ring_object_device <<| |>>
  #     -> exec { 'rebalance': command => '/usr/bin/swift-ring-builder /etc/swift/object.builder rebalance' }
  #   }
  dispatch :require_exports do
    scope_param
    param 'Variant[Pattern[/\A(?i:[a-z]\w*)(::(?i:[a-z]\w*))*\z/], Type[Resource]]', :type
    optional_param 'Integer[1]', :at_least
    block_param 'Callable[0, 0]', :block
  end

  def require_exports(scope, type, at_least = 1)
    name = PuppetX::Tutti::Exports.type_name(type, 'tutti::require_exports')
    run = PuppetX::Tutti::Run.current
    PuppetX::Tutti::Run.warn_bare if run.nil?
    at = PuppetX::Tutti::Position.of(scope)
    return yield if run && run.collect(name, nil, at).length >= at_least

    run&.waits&.note(PuppetX::Tutti::Waits.wait('collect', name, at))
    PuppetX::Tutti::LeftOut.declare(scope, "#{at_least} #{name}", "#{name} <<| |>> with at least #{at_least} of other nodes")
    nil
  end
end
