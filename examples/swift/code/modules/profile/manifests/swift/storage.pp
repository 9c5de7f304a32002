# @summary A storage node, which exports its devices and fetches the rings.
#   The rings contain the devices of all storage nodes.
#
# @param devices
#   Names of directories under /srv/node. Real nodes mount a disk on each.
#
# @param zone
#   The replicas of one object go to different zones. By default each node is a zone.
class profile::swift::storage (
  Array[String[1], 1] $devices = ['d1'],
  Integer[1]          $zone    = Integer($facts['networking']['hostname'].regsubst('^\D+', ''), 10),
) {
  include profile::swift

  $address = $facts['networking']['ip']

  class { 'swift::storage::all':
    storage_local_net_ip     => $address,
    object_port              => 6200,
    container_port           => 6201,
    account_port             => 6202,
    mount_check              => false,
    object_server_workers    => 1,
    container_server_workers => 1,
    account_server_workers   => 1,
  }

  file { ['/srv/node'] + $devices.map |$device| { "/srv/node/${device}" }:
    ensure  => directory,
    owner   => 'swift',
    group   => 'swift',
    require => Anchor['swift::install::end'],
    before  => Anchor['swift::service::begin'],
  }

  $devices.each |$device| {
    @@ring_object_device { "${address}:6200/${device}":
      zone   => $zone,
      weight => 1,
    }
    @@ring_container_device { "${address}:6201/${device}":
      zone   => $zone,
      weight => 1,
    }
    @@ring_account_device { "${address}:6202/${device}":
      zone   => $zone,
      weight => 1,
    }
  }

  # This class reads the values without using them. Reading the values makes this node run again
  # after the ring builder has built new rings.
  if $profile::swift::ring_digests {
    $rings = ['account', 'container', 'object'].map |$ring| {
      tutti::value("swift/rings/${ring}", undef)
    }
  }

  # The module fetches the rings but does not order the fetching.
  Swift::Ringsync <<| |>>
  Anchor['swift::config::end'] -> Swift::Ringsync <| |> -> Anchor['swift::service::begin']
}
