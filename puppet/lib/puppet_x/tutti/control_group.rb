# frozen_string_literal: true

module PuppetX
  module Tutti
    # This module makes a control group for one run, below the scope that systemd has delegated to the warm parent.
    # With this group the agent finds the processes that a run leaves, like with the scope of a cold run
    # (internal/puppet/kill.go).
    module ControlGroup
      SCOPE = %r{/tutti-warm-[^/]+\.scope\z}.freeze

      # Moves a process into the group of its run.
      # @return [Array<String>] the directories of the group; empty if systemd does not run
      def self.make(run, pid)
        own.map do |directory|
          group = File.join(directory, "tutti-run-#{run}.scope")
          Dir.mkdir(group)
          File.write(File.join(group, 'cgroup.procs'), pid.to_s)
          group
        end
      end

      # Removes the groups without processes.
      # @return [Array<String>] the groups that still contain a process
      def self.sweep(groups)
        groups.reject do |group|
          Dir.rmdir(group)
          true
        rescue Errno::ENOENT
          true
        rescue SystemCallError
          false
        end
      end

      # Returns the groups of this process in each hierarchy that systemd has created.
      def self.own
        File.readlines('/proc/self/cgroup', chomp: true).filter_map do |line|
          _, controllers, path = line.split(':', 3)
          File.join(mount(controllers), path) if path.match?(SCOPE)
        end
      end

      # Returns the directory of a hierarchy. This is the unified hierarchy, alone or together with others, or
      # the older hierarchy of systemd itself.
      def self.mount(controllers)
        return "/sys/fs/cgroup/#{controllers.delete_prefix('name=')}" unless controllers.empty?

        File.exist?('/sys/fs/cgroup/cgroup.procs') ? '/sys/fs/cgroup' : '/sys/fs/cgroup/unified'
      end
      private_class_method :own, :mount
    end
  end
end
