# frozen_string_literal: true

require 'puppet'
require_relative 'exports'

module PuppetX
  module Tutti
    # PuppetDB below Tutti on a Puppet Server (`exports: puppetdb`): it stores facts and catalogs as ever, and answers collectors.
    module PuppetDB
      # @param indirection [Puppet::Indirector::Indirection]
      # @param operation [Symbol] what PuppetDB's terminus is to do with the request
      def self.call(indirection, operation, request)
        indirection.terminus(:puppetdb).public_send(operation, request)
      end

      # Whether PuppetDB has given what a node of Tutti's exports now. It stores catalogs some time after they are compiled.
      # What it has besides, of other nodes, is its own.
      # @param exports [Array<Hash>] what Tutti answers to the same question
      # @param found [Array<Puppet::Parser::Resource>] what PuppetDB has answered
      def self.stored?(exports, found)
        by_origin = found.to_h { |resource| [resource.collector_id, resource] }
        exports.all? do |export|
          resource = by_origin[Exports.origin(export)]
          resource && same?(export['parameters'] || {}, resource)
        end
      end

      # Only what both write alike is compared: PuppetDB has words of its own for references and sensitive values.
      def self.same?(parameters, resource)
        parameters.all? do |name, value|
          case value
          when String, Numeric, true, false then resource[name.to_sym].to_s == value.to_s
          else true
          end
        end
      end
      private_class_method :same?
    end
  end
end
