# frozen_string_literal: true

require 'set'
require_relative 'refreshes'

module PuppetX
  module Tutti
    # Writes the events of each resource in the host catalog while they happen.
    class Events
      # MOST is the largest number of references in one line.
      MOST = 100

      # @param journal [Journal]
      # @param owed [Array<String>] resources whose refresh an earlier run owes
      def initialize(journal, owed = [])
        @journal = journal
        @owed = owed.to_set
        @ended = Set.new
        @changing = {} # reference → resources that Puppet refreshes because of the change
        @due = Set.new # references of the resources that Puppet must still refresh
      end

      # Reports the beginning of a resource's evaluation, yields, and reports how the evaluation ended.
      def around(transaction, resource)
        total(transaction)
        @journal.write('event' => 'start', 'resource' => resource.ref)
        repeat(transaction, resource) if @owed.delete?(resource.ref)
        before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        result = yield
        elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
        ended(transaction.resource_status(resource), elapsed)
        result
      end

      # Writes, before Puppet changes a resource, which resources Puppet must refresh after the change. Puppet
      # itself forgets these resources, and an interrupted run could not write them later.
      # @raise [SystemCallError, IOError] if the line cannot be written; Puppet must then not change the resource
      def changing(transaction, resource)
        return if @changing.key?(resource.ref)

        targets = refreshes(transaction).of(resource).reject { |reference| @due.include?(reference) }
        targets.each_slice(MOST) { |some| @journal.note('event' => 'change', 'resource' => resource.ref, 'notifies' => some) }
        @changing[resource.ref] = targets
      end

      # Reports that Puppet has refreshed a resource. Puppet must next refresh the resources that this resource
      # notifies.
      def refreshed(resource)
        @due.delete(resource.ref)
        @due.merge(@changing.fetch(resource.ref, []))
        @journal.write('event' => 'refreshed', 'resource' => resource.ref)
      end

      # Reports the results of resources that Puppet judged without evaluating them (no provider, a failed
      # generation).
      def rest(statuses)
        statuses.each do |status|
          next if @ended.include?(status.resource) || !(status.failed? || status.skipped?)

          ended(status, status.evaluation_time)
        end
      end

      private

      def total(transaction)
        return if @total

        @total = transaction.relationship_graph.vertices.count { |resource| !resource.is_a?(Puppet::Type::Whit) }
        @journal.write('event' => 'total', 'resources' => @total)
        (@owed - transaction.relationship_graph.vertices.map(&:ref)).each { |reference| drop(reference) } unless @owed.empty?
      end

      def refreshes(transaction)
        @refreshes ||= Refreshes.new(transaction.relationship_graph)
      end

      # Lets Puppet refresh the resource as if this run had made the change of the earlier run. Puppet
      # refreshes the resource only after the resource's dependencies, and skips an excluded resource.
      def repeat(transaction, resource)
        return drop(resource.ref) unless Refreshes.of?(resource)

        resource.notice('tutti: an earlier run owes its refresh, which is repeated')
        event = resource.event(name: :owed, status: 'success', message: 'an earlier run owes its refresh')
        transaction.event_manager.queue_events_for_resource(resource, resource, :refresh, [event])
      end

      def drop(reference)
        @journal.write('event' => 'dropped', 'resource' => reference)
      end

      def ended(status, elapsed)
        @ended << status.resource
        @due.merge(@changing.fetch(status.resource, [])) if status.changed?
        @journal.write(
          'event' => 'done', 'resource' => status.resource, 'changed' => status.changed?,
          'failed' => status.failed? || status.failed_to_restart?, 'skipped' => status.skipped?,
          'noop' => status.events.any? { |event| event.status == 'noop' }, 'corrective' => status.corrective_change == true,
          'time' => elapsed&.round(3), 'file' => status.file, 'line' => status.line, 'message' => message(status)
        )
      end

      # Returns the message of the first failed event. If no event failed, the method returns which
      # dependencies failed. If no dependency failed, the method returns the message of the first change.
      # Puppet has already removed secrets from event messages.
      def message(status)
        event = status.events.find { |e| e.status == 'failure' }
        return event.message if event
        return "dependency failed: #{status.failed_dependencies.map(&:ref).join(', ')}" if status.dependency_failed?

        status.events.find { |e| %w[success noop].include?(e.status) }&.message
      end
    end
  end
end
