# frozen_string_literal: true

require 'puppet_x/tutti/run'

# Lists the groups of the node for which Puppet compiles, as the server decides them. The list comes from the fleet file
# and from how the node joined, never from a fact, so a node cannot choose it. The list stays the same during one run and
# is part of the run's record. When the groups of the node change, this node runs again.
Puppet::Functions.create_function(:'tutti::groups', Puppet::Functions::InternalFunction) do
  # @return [Array[String]] the names of the groups, sorted; outside of a run of Tutti the compile ends with an error,
  #   because a node without groups would get other code
  # @example
  #   if 'canary' in tutti::groups() { include profile::canary }
  dispatch :required do
    scope_param
    return_type 'Array[String]'
  end

  # @param default the result outside of a run of Tutti
  # @return [Array[String]] the names of the groups, sorted, or the default
  # @example For a top-scope variable in site.pp, which Hiera may use
  #   $tutti_groups = tutti::groups([])
  dispatch :optional do
    scope_param
    param 'Array[String]', :default
    return_type 'Array[String]'
  end

  def required(scope)
    groups = ask(scope)
    return groups if groups

    raise Puppet::Error, 'tutti::groups: this Puppet was not started by Tutti, so nobody knows the groups, and no default is given'
  end

  def optional(scope, default)
    ask(scope) || default
  end

  def ask(scope)
    run = PuppetX::Tutti::Run.current
    return run.groups(PuppetX::Tutti::Position.of(scope)) if run

    PuppetX::Tutti::Run.warn_bare
    nil
  end
end
