# @summary The one node that makes the rings of all storage nodes' devices, and
#   hands them out.
#
# @param part_power
#   The number of partitions as a power of two. It cannot be changed later.
#
# @param replicas
#   How many copies of each object there are.
#
# @param min_part_hours
#   How long a partition stays where it is before it may move again. Nothing is
#   stored here that would have to be copied meanwhile.
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

  # The module orders these between creating and balancing the rings.
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

    # The rings travel by rsync, of which Tutti knows nothing. Who fetches them
    # reads this digest, so that it runs again when they have changed.
    if $profile::swift::ring_digests {
      tutti_value { "swift/rings/${ring}":
        source_file => "/etc/swift/${ring}.ring.gz",
        require     => Swift::Ringbuilder::Rebalance[$ring],
      }
    }
  }
}
