# frozen_string_literal: true

# Mirror is a function of a module. The function reports the state of the process in which it runs.
module Mirror
  FUNCTION = <<~'RUBY'
    require 'json'
    Puppet::Functions.create_function(:'m::mirror') do
      def mirror
        dir = File.dirname(Puppet[:hiera_config])
        File.write("#{dir}/mirror", JSON.generate(ruby.merge(process).merge(puppet)))
        dir
      end

      def ruby
        { 'argv' => ARGV, 'name' => [$PROGRAM_NAME], 'flags' => [$VERBOSE, $DEBUG, $stdout.sync, $stderr.sync, $stdin.sync],
          'encoding' => [Encoding.default_external, Encoding.default_internal, Encoding.find('locale')].map(&:to_s),
          'gc' => [GC.stress, GC.disable.tap { GC.enable }], 'path' => $LOAD_PATH, 'zone' => [Time.now.zone],
          'traps' => %w[HUP INT QUIT USR1 USR2 PIPE ALRM TERM CHLD].to_h { |name| [name, trap(name, 'DEFAULT').tap { |old| trap(name, old) }.inspect[/\A[^ ]+(?=:0x)|.+/]] } }
      end

      def process
        GC.start # if a command does not exist, only the garbage collector closes its pipes
        status = File.readlines('/proc/self/status', chomp: true).grep(/\A(Sig|Umask|Uid|Gid|Groups|Cap|NoNew|Seccomp)/)
        { 'env' => ENV.to_h, 'status' => status - status.grep(/SigQ/), 'place' => [File.umask, Dir.pwd, File.read('/proc/self/comm'), File.read('/proc/self/oom_score_adj')],
          'fds' => Dir.children('/proc/self/fd').map { |fd| link(fd) }.compact.sort, 'first' => %w[0 1 2].map { |fd| link(fd) },
          'leads' => [Process.getpgrp == Process.pid, Process.getsid == Process.pid], 'nice' => [Process.getpriority(Process::PRIO_PROCESS, 0)],
          'limits' => %i[CORE CPU DATA FSIZE MEMLOCK NOFILE NPROC STACK].to_h { |name| [name, Process.getrlimit(name)] } }
      end

      def link(fd)
        File.readlink("/proc/self/fd/#{fd}").sub(/\[\d+\]/, '').then { |name| name unless name.start_with?('/proc/', 'anon_inode:[eventfd') || name == 'anon_inode:' }
      rescue SystemCallError
        nil
      end

      def puppet
        types = %i[cron exec file group mount notify package service ssh_authorized_key user].map { |name| Puppet::Type.type(name) }.compact
        { 'settings' => Puppet.settings.map { |name, _| [name, Puppet[name].inspect] }.to_h,
          'log' => [Puppet::Util::Log.level, Puppet::Util::Log.destinations.keys.map(&:to_s)],
          'facter' => Facter::Options.get.transform_values(&:inspect), 'runtime' => [Puppet.runtime[:facter].class.name],
          'features' => %i[libuser libshadow selinux cfpropertylist root posix msgpack hocon].to_h { |name| [name, Puppet.features.public_send("#{name}?")] },
          'indirections' => Puppet::Indirector::Indirection.instances.sort.to_h { |name| [name, termini(name)] },
          'types' => types.to_h { |type| [type.name, [type.allattrs, type.providers, type.suitableprovider.map(&:name), type.defaultprovider.to_s]] },
          'features_of_providers' => types.to_h { |type| [type.name, type.providers.to_h { |name| [name, type.provider(name).declared_feature?(:manages_passwords)] }] },
          'context' => [Puppet.lookup(:current_environment).name, Puppet.lookup(:root_environment).name, Puppet.run_mode.name] }
      end

      def termini(name)
        indirection = Puppet::Indirector::Indirection.instance(name)
        [indirection.cache_class, indirection.terminus_setting && Puppet[indirection.terminus_setting], indirection.instance_variable_get(:@terminus_class)&.value]
      end
    end
  RUBY

  # COMMAND is a script that reports the state of its process when the run starts the script.
  COMMAND = <<~'SH'
    #!/bin/sh
    exec > "$1"
    env | sort
    umask
    ulimit -a
    grep -E '^(Sig[A-Z]|Groups|Cap)' /proc/self/status | grep -v SigQ
    readlink /proc/self/cwd
    ls -l /proc/$$/fd > "$1.fds" # into a file, because with a pipe this shell would have one more descriptor
    sed 's/.* \([0-9]* -> .*\)/\1/; s/\[[0-9]*\]//' "$1.fds" | grep -- '->'
  SH
end
