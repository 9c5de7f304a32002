# @summary What all of Nova's services need: the broker, and the other services.
#
# @param controller
#   The node that runs the broker and the other services.
class profile::nova (
  String[1] $controller,
) {
  $password = lookup('profile::broker_password')

  class { 'nova':
    default_transport_url => "rabbit://openstack:${password}@${controller}:5672/",
  }
  class { 'nova::placement':
    auth_url => "http://${controller}:5000/v3",
  }
}
