# @summary Settings of every node in the cluster: Swift's hash suffix.
#   Swift's services on the node wait for their rings.
#
# @param hash_path_suffix
#   A secret suffix that is part of each object's hashed path. It must never change.
#
# @param ring_digests
#   Whether the nodes publish and read the digests of the rings as values of Tutti.
#   A Puppet Server without Tutti's module cannot compile such code.
class profile::swift (
  String[1] $hash_path_suffix,
  Boolean   $ring_digests = true,
) {
  class { 'swift':
    swift_hash_path_suffix => $hash_path_suffix,
  }

  # Rings say where data belongs, so no service can work without them. The ring builder first needs
  # the devices of the storage nodes. Debian's units fail to start before the rings are there. With
  # this condition systemd does not start the units before the rings are there. The first run after
  # the rings are there starts the units. The name of this directory applies to every unit whose
  # name begins with `swift-`.
  file { '/etc/systemd/system/swift-.service.d':
    ensure => directory,
  }
  -> file { '/etc/systemd/system/swift-.service.d/rings.conf':
    content => epp('profile/rings.conf.epp', { 'rings' => ['account', 'container', 'object'] }),
    before  => Anchor['swift::service::begin'],
  }
}
