# frozen_string_literal: true

require 'puppet'
require 'puppet/util/pidlock'

module PuppetX
  module Tutti
    # A Lock is Puppet's own run lock. `puppet agent` takes the run lock, and `puppet apply` does
    # not. Only Puppet's Pidlock decides who holds the lock, and whether it is stale.
    class Lock
      # Returns the agent's lock file, even if its path is set only for `puppet agent`.
      def self.path
        Puppet.settings.values(Puppet[:environment].to_sym, :agent).interpolate(:agent_catalog_run_lockfile)
      end

      def initialize(path)
        @lock = Puppet::Util::Pidlock.new(path)
      end

      # @yield [pid, command] each time another process has the lock; if the block returns false, the method returns
      # @return [Boolean] whether this process has the lock now
      def take
        until attempt
          pid = @lock.lock_pid
          next if pid.nil?
          return false unless yield(pid, command(pid))
        end
        true
      end

      def release
        @lock.unlock
      end

      def path
        @lock.file_path
      end

      private

      # Pidlock checks the owner with `ps`. The check fails on small systems without `ps`, and when
      # the owner ends between two checks.
      def attempt
        @lock.lock
      rescue Puppet::ExecutionFailure
        pid = @lock.lock_pid
        Puppet::FileSystem.unlink(path) unless pid.nil? || puppet?(pid)
        false
      end

      # This method uses the same rule as Pidlock, with data from /proc.
      def puppet?(pid)
        name = proc_text(pid, 'comm')
        name.match?(/puppet(-.*)?$/) || (name.include?('ruby') && command(pid).include?('puppet'))
      end

      def command(pid)
        proc_text(pid, 'cmdline')
      end

      def proc_text(pid, file)
        File.read("/proc/#{pid}/#{file}").tr("\0", ' ').strip
      rescue SystemCallError
        ''
      end
    end
  end
end
