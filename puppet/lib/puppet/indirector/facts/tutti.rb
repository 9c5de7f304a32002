# frozen_string_literal: true

require 'puppet/indirector/code'
require 'puppet/node/facts'
require 'puppet_x/tutti/compiles'

# Keeps the facts of the run for the run's record.
class Puppet::Node::Facts::Tutti < Puppet::Indirector::Code
  desc 'Hands the facts of a run over to Tutti.'

  def save(request)
    return puppetdb(:save, request) if PuppetX::Tutti::Compiles.installed?

    run = PuppetX::Tutti::Run.current
    raise Puppet::Error, 'tutti: facts are handed over in runs of Tutti only' if run.nil?

    run.facts = request.instance.values
    PuppetX::Tutti::Launcher.current&.facts(run.facts)
  end

  def find(request)
    puppetdb(:find, request)
  end

  def allow_remote_requests?
    false
  end

  private

  def puppetdb(operation, request)
    PuppetX::Tutti::PuppetDB.call(Puppet::Node::Facts.indirection, operation, request) if PuppetX::Tutti::Compiles.puppetdb?
  end
end

PuppetX::Tutti::Compiles.install
