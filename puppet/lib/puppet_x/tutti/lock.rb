# frozen_string_literal: true

require 'puppet'
require 'puppet/util/pidlock'

module PuppetX
  module Tutti
    # Puppet's own run lock, which `puppet agent` takes and `puppet apply` does not.
    # Who holds it, and whether a lock is left over, is decided by Puppet's Pidlock alone.
    class Lock
      # The agent's lock file, also where it is set for `puppet agent` only.
      def self.path
        Puppet.settings.values(Puppet[:environment].to_sym, :agent).interpolate(:agent_catalog_run_lockfile)
      end

      def initialize(path)
        @lock = Puppet::Util::Pidlock.new(path)
      end

      # @yield [pid, command] each time the lock is found held; false ends the attempt
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

      # Pidlock looks at the owner with `ps`, which fails where there is none (small systems),
      # and when the owner ends between its two looks.
      def attempt
        @lock.lock
      rescue Puppet::ExecutionFailure
        pid = @lock.lock_pid
        Puppet::FileSystem.unlink(path) unless pid.nil? || puppet?(pid)
        false
      end

      # Pidlock's own rule, read from /proc.
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
