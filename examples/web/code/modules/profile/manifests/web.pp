# @summary A web server, which shows its page and exports its address.
#
# @param release
#   The release that the page shows.
#
# @param weight The weight of this server. The share of a server depends on the weights of all
#   servers. A server with weight 0 gets no requests.
class profile::web (
  String[1]       $release,
  Integer[0, 256] $weight = 100,
) {
  $certname = $trusted['certname']
  $docroot   = '/var/www/site'

  class { 'apache':
    default_vhost => false,
  }
  apache::vhost { 'site':
    port    => 80,
    docroot => $docroot,
  }
  file { "${docroot}/index.html":
    content => "release ${release} from ${certname}\n",
  }

  @@haproxy::balancermember { $certname:
    listening_service => 'site',
    server_names      => $certname,
    ipaddresses       => $facts['networking']['ip'],
    ports             => 80,
    options           => 'check',
    weight            => $weight,
  }
}
