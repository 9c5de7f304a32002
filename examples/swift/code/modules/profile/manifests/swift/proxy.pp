# @summary The cluster's front door, with accounts of its own instead of Keystone.
#
# @param users
#   The users who may log in, in the form of `swift::proxy::tempauth`.
class profile::swift::proxy (
  Array[Hash, 1] $users,
) {
  include profile::swift

  class { 'memcached':
    max_memory => 64,
  }

  class { 'swift::proxy':
    proxy_local_net_ip => '0.0.0.0',
    workers            => 1,
  }
  include swift::proxy::catch_errors
  include swift::proxy::gatekeeper
  include swift::proxy::healthcheck
  include swift::proxy::proxy_logging
  include swift::proxy::cache
  include swift::proxy::listing_formats
  include swift::proxy::copy
  class { 'swift::proxy::tempauth':
    account_user_list => $users,
  }
}
