# @summary A compute node: servers run here. Without the controller it waits.
class profile::hypervisor {
  class { 'profile::nova':
    controller => tutti::value('compute/controller'),
  }
  include nova::compute
  include nova::compute::libvirt

  # On the hosts of a lab, libvirt may not create control groups.
  qemu_config { 'cgroup_controllers':
    value  => '[ ]',
    notify => Service['libvirt'],
  }
}
