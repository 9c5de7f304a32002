# frozen_string_literal: true

require 'fileutils'
require 'tmpdir'

# OwnFacter is a copy of the system's Facter. The examples may change the copy, its facter.conf and
# its cache.
class OwnFacter
  # The directory of the copy, for RUBYLIB.
  attr_reader :dir

  def initialize
    @dir = File.join(Dir.mktmpdir('tutti-facter'), 'site')
    FileUtils.mkdir_p(@dir)
    facter = $LOAD_PATH.resolve_feature_path('facter').last
    FileUtils.cp_r([facter, facter.delete_suffix('.rb')], @dir)
    edit('facter/framework/config/config_reader.rb', /linux_path = .*/, "linux_path = '#{conf}'")
    edit('facter/custom_facts/util/config.rb', %r{'/var/cache/facter/facts'}, "'#{File.join(File.dirname(@dir), 'cache')}'")
    File.write(conf, '')
  end

  def conf
    path('facter.conf')
  end

  def path(name)
    File.join(@dir, name)
  end

  def clean
    FileUtils.rm_rf(File.dirname(@dir))
  end

  private

  def edit(name, old, new)
    text = File.read(path(name))
    raise "#{name} has no #{old.inspect}" unless text.match?(old)

    File.write(path(name), text.sub(old, new))
  end
end
