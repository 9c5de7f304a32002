# Writes what the report processors of PuppetDB and Foreman make from Puppet's recorded reports.
#
#   ruby record.rb TERMINUS FOREMAN REPORT... > want.json
#
# TERMINUS is the lib directory of the package puppet-terminus-puppetdb. FOREMAN is Foreman's report processor.
# The processors' own code runs, except the request.
require 'json'
require 'puppet'
terminus, foreman, *files = ARGV
$LOAD_PATH.unshift(terminus)
Puppet.initialize_settings([])
Puppet[:node_name_value] = 'tutti.example.net'
require 'puppet/reports'
require 'puppet/reports/puppetdb'
eval(File.read(foreman).sub(/^SETTINGS = .*$/, 'SETTINGS = {}'), binding, foreman)
at = Time.utc(2026, 11, 21, 19, 0, 0.123456r)
out = files.to_h do |file|
  load = -> { Puppet::Transaction::Report.from_data_hash(JSON.parse(File.read(file))) }
  db = load.call.extend(Puppet::Reports.report(:puppetdb)).report_to_hash(at)
  fm = load.call.extend(Puppet::Reports.report(:foreman)).generate_report
  [file.split('/').last(2).join('/'), { puppetdb: db, foreman: fm }]
end
puts JSON.pretty_generate(out)
