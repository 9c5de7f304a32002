# @summary The site's front door.
class profile::balancer {
  include haproxy

  # `haproxy::listen` collects the web servers that export themselves for the service `site`.
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
