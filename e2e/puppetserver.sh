# This script configures Debian's Puppet Server as the Puppet Server's documentation says. It makes the CA and the
# Puppet Server's own certificate. The CA signs every request. The node classifier says nothing until a test writes
# enc.yaml.
set -eu
cat > /etc/puppet/puppet.conf <<CONF
[main]
certname = puppet
server = puppet
[server]
autosign = true
node_terminus = exec
external_nodes = /usr/local/bin/enc
CONF
printf '#!/bin/sh\ncat /etc/puppet/enc.yaml\n' > /usr/local/bin/enc
chmod 755 /usr/local/bin/enc
echo '{}' > /etc/puppet/enc.yaml
mkdir -p /etc/puppet/code/environments/production/manifests
puppetserver ca setup

# The JVM runs only for minutes, so its compiler should not spend time on optimization.
sed -i 's/-Xms1g -Xmx1g/-Xms512m -Xmx768m -XX:TieredStopAtLevel=1/' /etc/default/puppetserver

# Usage: compile_ahead UNIT JAR MAIN FILE...
# The unit is written in Clojure, and Debian ships it as source text. Each start would compile this
# text, which takes half of the time of the start. compile_ahead compiles MAIN, and the services
# that the files name, once.
compile_ahead() {
  unit=$1 jar=$2 main=$3
  shift 3
  classes=/var/lib/$unit.classes
  mkdir "$classes"
  # shellcheck disable=SC2046 # a list of names
  echo '(run! (comp compile symbol) *command-line-args*) (shutdown-agents)' |
    java -XX:TieredStopAtLevel=1 -Dclojure.compile.path="$classes" -cp "$classes:$jar" clojure.main - \
      "$main" $(sed -n 's#^\(puppetlabs[^/]*\)/.*#\1#p' "$@")
  sed -e "s#-jar $jar#-cp $jar $main#" -e "s#-cp $jar#-cp $classes:$jar#" \
    "$(systemctl show -P FragmentPath "$unit")" > "/etc/systemd/system/$unit.service"
  systemctl daemon-reload
}
compile_ahead puppetserver /usr/share/puppetserver/puppetserver.jar puppetlabs.trapperkeeper.main \
  /etc/puppet/puppetserver/services.d/*
