# frozen_string_literal: true

require 'puppet/indirector/code'
require 'puppet_x/tutti/run'

# Answers the collectors of exported resources with the exports of other nodes.
class Puppet::Resource::Tutti < Puppet::Indirector::Code
  desc 'Exported resources through Tutti.'

  def search(request)
    run = PuppetX::Tutti::Run.current
    raise Puppet::Error, 'tutti: exported resources are collected in runs of Tutti only' if run.nil?

    scope = request.options[:scope]
    filter = PuppetX::Tutti::Filter.normal(request.options[:filter])
    run.collect(request.key, filter, run.collectors.position(scope))
       .map { |export| PuppetX::Tutti::Exports.resource(export, scope) }
  end

  def find(_request)
    nil
  end

  def allow_remote_requests?
    false
  end
end
