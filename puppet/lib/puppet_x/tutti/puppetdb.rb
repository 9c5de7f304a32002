# frozen_string_literal: true

require 'puppet'

module PuppetX
  module Tutti
    # This module lets Tutti's termini on a Puppet Server call the termini of PuppetDB (`exports: puppetdb`). PuppetDB
    # still stores facts and catalogs, and answers collectors.
    module PuppetDB
      # @param indirection [Puppet::Indirector::Indirection]
      # @param operation [Symbol] the method of PuppetDB's terminus that gets the request
      def self.call(indirection, operation, request)
        indirection.terminus(:puppetdb).public_send(operation, request)
      end

      # Returns the catalogs that PuppetDB has now for nodes that export resources of a type, in the form of the
      # protocol.
      # @return [Hash{String => Hash}] by certname
      def self.catalogs(type)
        Puppet::Resource.indirection.terminus(:puppetdb) # this loads PuppetDB's library
        exporters = ['from', 'resources', ['extract', 'certname', ['and', ['=', 'type', type], ['=', 'exported', true]]]]
        query = ['from', 'catalogs', ['extract', %w[certname transaction_uuid catalog_uuid], ['in', 'certname', exporters]]]
        Puppet::Util::Puppetdb.query_puppetdb(query).to_h do |row|
          [row.fetch('certname'), { 'transaction_uuid' => row['transaction_uuid'].to_s, 'catalog_uuid' => row['catalog_uuid'].to_s }]
        end
      rescue JSON::ParserError, KeyError, TypeError, NoMethodError => e # PuppetDB's library does not check the answer
        raise Puppet::Error, "tutti: PuppetDB does not say which catalogs it has: #{e.message}"
      end

      # Returns the given catalogs, and marks each catalog of which PuppetDB has found a resource.
      # @param found [Array<Puppet::Parser::Resource>] the answer that PuppetDB has given after `catalogs`
      def self.stored(catalogs, found)
        found.map { |resource| resource.collector_id.split('|', 2).first }.uniq
             .each_with_object(catalogs.dup) { |name, all| all[name] = (all[name] || {}).merge('found' => true) }
      end
    end
  end
end
