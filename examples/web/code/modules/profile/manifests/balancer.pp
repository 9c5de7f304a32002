# @summary The site's front door.
class profile::balancer {
  include haproxy

  # It collects what the web servers export for it, by its own name.
  haproxy::listen { 'site':
    mode      => 'http',
    ipaddress => '0.0.0.0',
    ports     => '80',
    options   => {
      'balance' => 'roundrobin',
      'option'  => ['httpchk GET /'],
    },
  }
}
