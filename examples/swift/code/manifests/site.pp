# Object storage on three nodes, behind one proxy that also builds the rings.

node /^storage-\d+/ {
  include profile::swift::storage
}

node /^proxy-\d+/ {
  include profile::swift::ringbuilder
  include profile::swift::proxy
}
