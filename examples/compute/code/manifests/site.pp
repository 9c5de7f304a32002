# Servers run on the compute nodes; the controller has everything else.

node /^controller-\d+/ {
  include profile::controller
}

node /^compute-\d+/ {
  include profile::hypervisor
}
