# frozen_string_literal: true

require 'puppet/indirector/code'
require 'puppet/node/facts'
require 'puppet_x/tutti/run'

# Keeps the facts of the run for its record.
class Puppet::Node::Facts::Tutti < Puppet::Indirector::Code
  desc 'Hands the facts of a run over to Tutti.'

  def save(request)
    run = PuppetX::Tutti::Run.current
    raise Puppet::Error, 'tutti: facts are handed over in runs of Tutti only' if run.nil?

    run.facts = request.instance.values
    PuppetX::Tutti::Launcher.current&.facts(run.facts)
  end

  def find(_request)
    nil
  end

  def allow_remote_requests?
    false
  end
end
