# Makes a Puppet Server with PuppetDB of a host that has Debian's packages, as their
# documentation says, and begins to start both. The CA comes first, so that they
# start side by side; the JVMs compile less, since they live for minutes.
set -eu
cat > /etc/puppet/puppet.conf <<EOF
[main]
certname = puppet
server = puppet
[server]
autosign = true
storeconfigs = true
storeconfigs_backend = puppetdb
EOF
printf '[main]\nserver_urls = https://puppet:8081\n' > /etc/puppet/puppetdb.conf
printf -- '---\nserver:\n  facts:\n    terminus: puppetdb\n    cache: json\n' > /etc/puppet/routes.yaml
mkdir -p /etc/puppet/code/environments/production
puppetserver ca setup
adduser --quiet puppetdb puppet
cat >> /etc/puppetdb/conf.d/jetty.ini <<EOF
ssl-host = 0.0.0.0
ssl-port = 8081
ssl-key = /var/lib/puppet/ssl/private_keys/puppet.pem
ssl-cert = /var/lib/puppet/ssl/certs/puppet.pem
ssl-ca-cert = /var/lib/puppet/ssl/certs/ca.pem
EOF
systemctl start postgresql
password=$(sed -n 's/^password = //p' /etc/puppetdb/conf.d/database.ini)
runuser -u postgres -- psql -qc "create role puppetdb login password '$password'" -c 'create database puppetdb owner puppetdb'
runuser -u postgres -- psql -qc 'create extension pg_trgm' puppetdb
sed -i 's/-Xms1g -Xmx1g/-Xms512m -Xmx768m -XX:TieredStopAtLevel=1/' /etc/default/puppetserver
sed -i 's/-Xmx192m/-Xmx192m -XX:TieredStopAtLevel=1/' /etc/default/puppetdb
systemctl start --no-block puppetserver puppetdb
