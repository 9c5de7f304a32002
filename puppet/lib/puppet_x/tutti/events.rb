# frozen_string_literal: true

require 'set'
require_relative 'refreshes'

module PuppetX
  module Tutti
    # Writes the events of each resource in the host catalog while they happen.
    class Events
      # @param journal [#write]
      def initialize(journal)
        @journal = journal
        @ended = Set.new
      end

      # Reports the beginning of a resource's evaluation, yields, and reports how the evaluation ended.
      def around(transaction, resource)
        total(transaction)
        start(transaction, resource)
        before = Process.clock_gettime(Process::CLOCK_MONOTONIC)
        result = yield
        elapsed = Process.clock_gettime(Process::CLOCK_MONOTONIC) - before
        ended(transaction.resource_status(resource), elapsed)
        result
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
      end

      # Writes which resources a resource notifies before Puppet applies the resource. An interrupted run
      # could not write the notified resources later.
      def start(transaction, resource)
        @refreshes ||= Refreshes.new(transaction.relationship_graph)
        notifies = @refreshes.of(resource)
        @journal.write({ 'event' => 'start', 'resource' => resource.ref, 'notifies' => (notifies unless notifies.empty?) }.compact)
      end

      def ended(status, elapsed)
        @ended << status.resource
        @journal.write(
          'event' => 'done', 'resource' => status.resource, 'changed' => status.changed?,
          'failed' => status.failed? || status.failed_to_restart?, 'skipped' => status.skipped?,
          'noop' => status.events.any? { |event| event.status == 'noop' }, 'corrective' => status.corrective_change == true,
          'time' => elapsed&.round(3), 'file' => status.file, 'line' => status.line, 'message' => message(status)
        )
      end

      # Returns the first failure. If no event failed, the method returns the reason for skipping the resource,
      # or else the change. Puppet has already removed secrets from event messages.
      def message(status)
        event = status.events.find { |e| e.status == 'failure' }
        return event.message if event
        return "dependency failed: #{status.failed_dependencies.map(&:ref).join(', ')}" if status.dependency_failed?

        status.events.find { |e| %w[success noop].include?(e.status) }&.message
      end
    end
  end
end
