# frozen_string_literal: true

$LOAD_PATH.unshift(File.expand_path('../lib', __dir__))

require 'puppet'
require 'tmpdir'
require_relative 'support/real_run'

RSpec.configure do |config|
  config.disable_monkey_patching!
  config.order = :defined
  config.expect_with(:rspec) { |expectations| expectations.include_chain_clauses_in_custom_matcher_descriptions = true }
end
