# @summary Installs Tutti's agent, and lets the machine join with its Puppet certificate.
#
# The operators have told the server the site's Puppet CA: `tutti server trust-ca` prints the values of `server` and
# `pin`. If an operator must approve the machine first, each Puppet run asks again, and no run fails.
#
# @param server
#   The address of Tutti's server for operators, as HOST:PORT.
# @param pin
#   The digest of the fleet's CA.
# @param ensure
#   With `absent` the machine leaves the fleet, and the program is removed.
# @param source
#   The URL of the program. Without it, the package `package` is installed.
# @param digest
#   The SHA-256 of the program at `source`, in hexadecimal digits.
# @param package
#   The name of the package, if there is no `source`.
# @param version
#   The version of the package, or `installed` or `latest`.
# @param code_keys
#   The digests of all keys that may sign code. Without them, the node trusts the keys that the server names.
class tutti::agent (
  Pattern[/\A[^\s:]+:\d+\z/, /\A\[[0-9a-f:]+\]:\d+\z/] $server,
  Pattern[/\Asha256:[0-9a-f]{64}\z/] $pin,
  Enum['present', 'absent'] $ensure = 'present',
  Optional[Pattern[/\A(https?|puppet|file):/]] $source = undef,
  Optional[Pattern[/\A[0-9a-f]{64}\z/]] $digest = undef,
  String[1] $package = 'tutti',
  String[1] $version = 'installed',
  Array[Pattern[/\Asha256:[0-9a-f]{64}\z/]] $code_keys = [],
) {
  if ($source == undef) != ($digest == undef) {
    fail('tutti::agent: give both source and digest, or neither')
  }

  $program = $source ? { undef => '/usr/bin/tutti', default => '/usr/local/bin/tutti' }
  $joined = 'test -e /var/lib/tutti/agent/identity/membership.json'
  $path = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin']

  if $ensure == 'absent' {
    exec { 'tutti leave':
      command => [$program, 'leave', '--yes'],
      onlyif  => $joined,
      path    => $path,
    }
    if $source == undef {
      package { $package:
        ensure  => absent,
        require => Exec['tutti leave'],
      }
    } else {
      # With the site's default for `backup`, Puppet could keep the whole program.
      file { $program:
        ensure  => absent,
        backup  => false,
        require => Exec['tutti leave'],
      }
    }
  } else {
    if $source == undef {
      package { $package:
        ensure => $version,
        before => Exec['tutti join'],
        notify => Exec['tutti agent: restart'],
      }
    } else {
      file { $program:
        ensure         => file,
        source         => $source,
        checksum       => 'sha256',
        checksum_value => $digest,
        owner          => 'root',
        group          => 'root',
        mode           => '0755',
        backup         => false,
        before         => Exec['tutti join'],
        notify         => Exec['tutti agent: restart'],
      }
    }

    $trusts = $code_keys.reduce([]) |$all, $key| { $all + ['--trust-code-key', $key] }
    # Exit code 10 says that an operator must approve the machine first.
    exec { 'tutti join':
      command => [$program, 'join', '--puppet-certificate', '--server', $server, '--pin', $pin] + $trusts,
      unless  => $joined,
      returns => [0, 10],
      path    => $path,
    }

    # Runs go on while the agent restarts. `tutti join` starts the agent the first time.
    exec { 'tutti agent: restart':
      command     => 'systemctl try-restart tutti-agent.service',
      onlyif      => $joined,
      refreshonly => true,
      path        => $path,
      require     => Exec['tutti join'],
    }
    exec { 'tutti agent: start':
      command => 'systemctl enable --now tutti-agent.service',
      onlyif  => $joined,
      unless  => 'systemctl is-active --quiet tutti-agent.service && systemctl is-enabled --quiet tutti-agent.service',
      path    => $path,
      require => Exec['tutti agent: restart'],
    }
  }
}
