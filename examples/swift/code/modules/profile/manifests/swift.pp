# @summary What every node of the cluster has: Swift's hash suffix, and services
#   that wait for their rings.
#
# @param hash_path_suffix
#   The cluster's own part of each object's path. It must never change.
#
# @param ring_digests
#   Whether the digests of the rings are published and read as values of Tutti.
#   A Puppet Server without Tutti's module cannot compile that.
class profile::swift (
  String[1] $hash_path_suffix,
  Boolean   $ring_digests = true,
) {
  class { 'swift':
    swift_hash_path_suffix => $hash_path_suffix,
  }

  # Rings say where data belongs, so no service can work without them, and the
  # ring builder needs the storage nodes' devices first. Debian's units fail to
  # start until then. With this condition they are left out instead, and the
  # run after the rings have come starts them. The directory's name applies to
  # every unit whose name begins with `swift-`.
  file { '/etc/systemd/system/swift-.service.d':
    ensure => directory,
  }
  -> file { '/etc/systemd/system/swift-.service.d/rings.conf':
    content => epp('profile/rings.conf.epp', { 'rings' => ['account', 'container', 'object'] }),
    before  => Anchor['swift::service::begin'],
  }
}
