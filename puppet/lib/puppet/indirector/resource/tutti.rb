# frozen_string_literal: true

require 'puppet/indirector/code'
require 'puppet_x/tutti/compiles'
require 'puppet_x/tutti/duplicates'

# Answers the collectors of exported resources with the exports of other nodes.
class Puppet::Resource::Tutti < Puppet::Indirector::Code
  desc 'Exported resources through Tutti.'

  def search(request)
    run = PuppetX::Tutti::Run.current
    filter = PuppetX::Tutti::Filter.normal(request.options[:filter])
    return of_puppetdb(run, request, filter) if PuppetX::Tutti::Compiles.puppetdb?

    raise Puppet::Error, 'tutti: exported resources are collected in runs of Tutti only, and by its nodes' if run.nil?

    scope = request.options[:scope]
    alone(run, scope, run.collect(request.key, filter, run.collectors.position(scope)).map { |export| PuppetX::Tutti::Exports.resource(export, scope) })
  end

  def find(_request)
    nil
  end

  def allow_remote_requests?
    false
  end

  private

  def of_puppetdb(run, request, filter)
    search = -> { PuppetX::Tutti::PuppetDB.call(Puppet::Resource.indirection, :search, request) }
    run ? alone(run, request.options[:scope], run.through_puppetdb(request.key, filter, &search)) : search.call
  end

  # A collector adds the found resources to the catalog, and `tutti::exports` does not.
  def alone(run, scope, found)
    run.collectors.asking? ? PuppetX::Tutti::Duplicates.refuse(found, scope, run.collectors.position(scope)) : found
  end
end

PuppetX::Tutti::Compiles.install
