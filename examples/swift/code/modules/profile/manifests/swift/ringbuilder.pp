# @summary The one node that builds the rings from the devices of all storage nodes.
#   The ring builder also serves the rings to the other nodes.
#
# @param part_power The number of partitions as a power of two. The number of partitions cannot be
#   changed later.
#
# @param replicas
#   The number of copies of each object.
#
# @param min_part_hours
#   The number of hours before a partition may move again. The default is 0, because
#   this example stores no data that must be copied first.
class profile::swift::ringbuilder (
  Integer[1, 32] $part_power     = 8,
  Integer[1]     $replicas       = 3,
  Integer[0]     $min_part_hours = 0,
) {
  include profile::swift

  $address = $facts['networking']['ip']

  class { 'swift::ringbuilder':
    part_power     => $part_power,
    replicas       => $replicas,
    min_part_hours => $min_part_hours,
  }

  # The module applies these resources after it creates the rings and before it balances them.
  Ring_object_device <<| |>>
  Ring_container_device <<| |>>
  Ring_account_device <<| |>>

  class { 'swift::ringserver':
    local_net_ip => $address,
  }

  ['account', 'container', 'object'].each |$ring| {
    @@swift::ringsync { $ring:
      ring_server => $address,
    }

    # The rings are copied with rsync, so Tutti does not see them. Nodes that fetch the rings read
    # this digest, so they run again after the rings have changed.
    if $profile::swift::ring_digests {
      tutti_value { "swift/rings/${ring}":
        source_file => "/etc/swift/${ring}.ring.gz",
        require     => Swift::Ringbuilder::Rebalance[$ring],
      }
    }
  }
}
