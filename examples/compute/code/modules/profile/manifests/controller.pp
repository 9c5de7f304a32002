# @summary The controller: databases, broker, and the services that decide. It says
#   where it is.
class profile::controller {
  $controller = $trusted['certname']

  # The services need databases, messages, and a cache.
  include mysql::server
  include rabbitmq
  rabbitmq_user { 'openstack':
    password => lookup('profile::broker_password'),
  }
  -> rabbitmq_user_permissions { 'openstack@/':
    configure_permission => '.*',
    read_permission      => '.*',
    write_permission     => '.*',
    before               => Anchor['nova::service::begin'],
  }
  include memcached

  # Keystone knows the users and the addresses of the services.
  include keystone
  include keystone::db::mysql
  include keystone::wsgi::uwsgi
  class { 'keystone::bootstrap':
    public_url       => "http://${controller}:5000",
    admin_url        => "http://${controller}:5000",
    manage_resources => false,
  }
  keystone_tenant { 'services':
    ensure => present,
  }

  # Glance and Placement have the images and the resources for servers.
  include glance
  include glance::db::mysql
  include glance::api
  include glance::wsgi::uwsgi
  glance::backend::multistore::file { 'file':
    filesystem_store_datadir => '/var/lib/glance/images',
  }
  class { 'glance::keystone::auth':
    public_url   => "http://${controller}:9292",
    internal_url => "http://${controller}:9292",
    admin_url    => "http://${controller}:9292",
  }

  # Where there is room.
  include placement
  include placement::db
  include placement::db::mysql
  include placement::keystone::authtoken
  include placement::api
  include placement::wsgi::uwsgi
  class { 'placement::keystone::auth':
    public_url   => "http://${controller}:8778",
    internal_url => "http://${controller}:8778",
    admin_url    => "http://${controller}:8778",
  }

  # Servers.
  class { 'profile::nova':
    controller => $controller,
  }
  include nova::db::mysql
  include nova::db::mysql_api
  include nova::api
  include nova::wsgi::uwsgi_api
  include nova::conductor
  include nova::scheduler
  include nova::cell_v2::simple_setup
  class { 'nova::keystone::auth':
    public_url   => "http://${controller}:8774/v2.1",
    internal_url => "http://${controller}:8774/v2.1",
    admin_url    => "http://${controller}:8774/v2.1",
  }

  # Nova's services end if they cannot ask Placement for free resources.
  Anchor['placement::service::end'] -> Anchor['nova::service::begin']

  # The compute nodes read this value, so the compute nodes run after everything above.
  tutti_value { 'compute/controller':
    value   => $controller,
    require => Anchor['glance::service::end', 'nova::service::end'],
  }
}
