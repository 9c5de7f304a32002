# @summary A compute node: servers run here. Without the controller it waits.
class profile::hypervisor {
  class { 'profile::nova':
    controller => tutti::value('compute/controller'),
  }
  include nova::compute
  include nova::compute::libvirt
}
