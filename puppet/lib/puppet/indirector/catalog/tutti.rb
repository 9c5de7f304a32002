# frozen_string_literal: true

require 'puppet/indirector/code'
require 'puppet/resource/catalog'
require 'puppet_x/tutti/compiles'

# This is the gate: Puppet saves the compiled catalog here before it applies anything.
class Puppet::Resource::Catalog::Tutti < Puppet::Indirector::Code
  desc 'Hands the compiled catalog over to Tutti and waits until it may be applied.'

  # On a Puppet Server the compile has already reported the catalog. There, this method gets the catalogs of
  # all nodes.
  def save(request)
    return puppetdb(:save, request) if PuppetX::Tutti::Compiles.installed?

    run = PuppetX::Tutti::Run.current
    raise Puppet::Error, 'tutti: catalogs are handed over in runs of Tutti only' if run.nil?

    catalog = request.instance
    expected = [run.order.node, run.order.environment]
    actual = [catalog.name, catalog.environment.to_s]
    unless actual == expected
      raise Puppet::Error, "tutti: a catalog of #{actual.join(' in environment ')} was compiled, " \
                           "#{expected.join(' in environment ')} was ordered"
    end

    PuppetX::Tutti::Launcher.current.gate(catalog)
  end

  def find(request)
    puppetdb(:find, request)
  end

  def allow_remote_requests?
    false
  end

  private

  def puppetdb(operation, request)
    PuppetX::Tutti::PuppetDB.call(Puppet::Resource::Catalog.indirection, operation, request) if PuppetX::Tutti::Compiles.puppetdb?
  end
end

PuppetX::Tutti::Compiles.install
