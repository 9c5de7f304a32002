# This script runs after puppetserver.sh. It adds PuppetDB on the same host, as PuppetDB's
# documentation says. PuppetDB starts once, to make the schema of its database.
cat >> /etc/puppet/puppet.conf <<CONF
storeconfigs = true
storeconfigs_backend = puppetdb
CONF
printf '[main]\nserver_urls = https://puppet:8081\n' > /etc/puppet/puppetdb.conf
printf -- '---\nserver:\n  facts:\n    terminus: puppetdb\n    cache: json\n' > /etc/puppet/routes.yaml
adduser --quiet puppetdb puppet
cat >> /etc/puppetdb/conf.d/jetty.ini <<CONF
ssl-host = 0.0.0.0
ssl-port = 8081
ssl-key = /var/lib/puppet/ssl/private_keys/puppet.pem
ssl-cert = /var/lib/puppet/ssl/certs/puppet.pem
ssl-ca-cert = /var/lib/puppet/ssl/certs/ca.pem
CONF
systemctl --quiet enable --now postgresql
password=$(sed -n 's/^password = //p' /etc/puppetdb/conf.d/database.ini)
runuser -u postgres -- psql -qc "create role puppetdb login password '$password'" -c 'create database puppetdb owner puppetdb'
runuser -u postgres -- psql -qc 'create extension pg_trgm' puppetdb
sed -i 's/-Xmx192m/-Xmx192m -XX:TieredStopAtLevel=1/' /etc/default/puppetdb
compile_ahead puppetdb /usr/share/puppetdb/puppetdb.jar puppetlabs.puppetdb.core /etc/puppetdb/bootstrap.cfg
systemctl start puppetdb
