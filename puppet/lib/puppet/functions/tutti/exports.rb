# frozen_string_literal: true

require 'puppet_x/tutti/compiles'
require 'puppet_x/tutti/exports'
require 'puppet_x/tutti/filter'

# Lists the resources that other nodes export, without adding them to the catalog. The question is the same as the
# question of the collector `Type <<| filter |>>` and is part of the run's record. Because of this question, the
# exporting nodes run before this node. When the answer changes, this node runs again. Outside of a run of Tutti the
# function lists the resources that a collector in the same code would find. Without storeconfigs the function lists
# nothing and logs one warning.
Puppet::Functions.create_function(:'tutti::exports', Puppet::Functions::InternalFunction) do
  # @param type the resource type, as a word or by its name
  # @param filter `['=', NAME, VALUE]` or `['!=', NAME, VALUE]`, where NAME is a parameter, `title` or `tag`.
  #   Combine several filters with `['and', …]` or `['or', …]`.
  # @return [Array[Hash]] of each resource `type`, `title`, `parameters`, `tags` and `certname`, sorted by title.
  #   Sensitive parameters are left out.
  # @example The addresses of all web servers
  #   $addresses = tutti::exports(Haproxy::Balancermember, ['=', 'tag', 'web']).map |$it| { $it['parameters']['ipaddresses'] }
  dispatch :exports do
    scope_param
    param 'Variant[Pattern[/\A(?i:[a-z]\w*)(::(?i:[a-z]\w*))*\z/], Type[Resource]]', :type
    optional_param 'Optional[Array]', :filter
    return_type 'Array[Hash]'
  end

  def exports(scope, type, filter = nil)
    name = PuppetX::Tutti::Exports.type_name(type, 'tutti::exports')
    infix = PuppetX::Tutti::Filter.infix(filter) unless filter.nil?
    if PuppetX::Tutti::Run.current.nil? && !Puppet[:storeconfigs]
      PuppetX::Tutti::Run.warn_bare
      return []
    end

    Puppet::Resource.indirection.search(name, host: scope.compiler.node.name, filter: infix, scope: scope)
                    .map { |found| PuppetX::Tutti::Exports.listed(found.is_a?(Puppet::Parser::Resource) ? found : found.to_resource(scope)) }
                    .sort_by { |listed| listed.values_at('title', 'certname').map(&:to_s) }
  end
end
