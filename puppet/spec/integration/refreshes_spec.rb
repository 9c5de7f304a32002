# frozen_string_literal: true

require_relative '../spec_helper'

# Before applying a resource, the run reports which resources a change of this resource would refresh.
# Therefore an interrupted run has already reported the refreshes that are still due.
RSpec.describe 'what a resource notifies' do
  let(:run) { RealRun.new }

  after { run.clean }

  def notifies(run)
    run.events('change').to_h { |event| [event['resource'], event['notifies']] }
  end

  it 'is told of a resource and of a class, through classes, and of no resource that cannot be refreshed' do
    run.manifest(<<~PUPPET).call
      class inner { exec { '/bin/true': refreshonly => true } notify { 'cannot be refreshed': } }
      class outer { contain inner }
      class conf { notify { 'of a class': } notify { 'bare': } -> notify { 'only before': } }
      include outer
      include conf
      Class['conf'] ~> Class['outer']
      notify { 'direct': } ~> exec { '/bin/echo': refreshonly => true }
    PUPPET
    expect(notifies(run)).to include(
      'Notify[of a class]' => ['Exec[/bin/true]'], 'Notify[direct]' => ['Exec[/bin/echo]']
    ), run.said
    expect(notifies(run)).not_to include('Exec[/bin/echo]', 'Exec[/bin/true]', 'Notify[cannot be refreshed]')
  end

  it 'is told once for all resources of a class, and again if the first one did not change' do
    run.manifest(<<~PUPPET).call
      class conf {
        exec { 'fails': command => '/bin/false' } notify { 'changes': } notify { 'later': require => Notify['changes'] }
        Exec['fails'] -> notify { 'left out': }
      }
      include conf
      Class['conf'] ~> exec { '/bin/true': refreshonly => true }
    PUPPET
    expect(notifies(run)).to eq('Exec[fails]' => ['Exec[/bin/true]'], 'Notify[changes]' => ['Exec[/bin/true]']), run.said
  end

  it 'is nothing in a noop run, also for a resource with noop => false' do
    run.order['mode'] = 'noop'
    run.manifest(<<~PUPPET).call
      file { '#{run.path('conf.txt')}': content => 'new', noop => false }
      ~> exec { '/bin/touch #{run.path('refreshed')}': refreshonly => true, noop => false }
      class insists { exec { '/bin/touch #{run.path('made')}': } }
      class { 'insists': noop => false }
    PUPPET
    expect([run.path('conf.txt'), run.path('refreshed'), run.path('made')].select { |file| File.exist?(file) }).to eq([]), run.said
    statuses = run.report['resource_statuses']
    expect(statuses.values.select { |status| status['changed'] }).to eq([])
    expect(statuses["File[#{run.path('conf.txt')}]"].slice('out_of_sync', 'skipped')).to eq('out_of_sync' => true, 'skipped' => false)
  end

  it 'is nothing in a noop run' do
    run.order['mode'] = 'noop'
    run.manifest("notify { 'direct': } ~> exec { '/bin/echo': refreshonly => true }\n").call
    expect(notifies(run)).to eq({}), run.said
  end
end
