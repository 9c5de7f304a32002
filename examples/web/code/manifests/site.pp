# A web site on two servers, behind one load balancer.

node /^web-\d+/ {
  include profile::web
}

node /^lb-\d+/ {
  include profile::balancer
}
