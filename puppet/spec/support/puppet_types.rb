# frozen_string_literal: true

require_relative '../spec_helper'
require 'rspec-puppet'

# The specs of functions and classes find the module on their modulepath.
RSpec.configure do |config|
  modules = Dir.mktmpdir
  File.symlink(RealRun::MODULE, File.join(modules, 'tutti'))
  config.module_path = modules
  config.manifest = '/nonexistent'
  config.setup_fixtures = false # otherwise rspec-puppet makes links in the sources
  config.after(:suite) { FileUtils.rm_rf(modules) }
end
