# @summary A web server: it shows its page, and says where it is.
#
# @param release
#   What the page shows.
#
# @param weight
#   This server's part of the requests, beside the weights of the others; with 0 it
#   gets none.
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
