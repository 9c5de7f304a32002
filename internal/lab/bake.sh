# This script copies the plain base $from to $root and installs $packages. It runs in its own
# namespaces. No service of the packages is started. A service is enabled only if its unit matches
# one of the patterns in $enabled. On a host, Puppet or the author of the lab decides which services
# run.
set -eu
cp -a --reflink=auto "$from" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs -o ro sysfs "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
cp /etc/resolv.conf "$root/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' > "$root/usr/sbin/policy-rc.d"
chmod 755 "$root/usr/sbin/policy-rc.d"

enabled_units() {
  chroot "$root" systemctl list-unit-files --no-legend --no-pager --state=enabled | cut -d' ' -f1 | sort
  for script in "$root"/etc/init.d/*; do
    if [ -e "$script" ]; then echo "sysv:${script##*/}"; fi
  done
}
# The function kept succeeds if the unit matches a pattern in $enabled. The script leaves these
# units enabled.
kept() {
  set -f # the patterns are for case, not for files
  for pattern in $enabled; do
    # shellcheck disable=SC2254 # $pattern is meant as a pattern
    case "${1%.service}" in $pattern) set +f; return 0 ;; esac
  done
  set +f
  return 1
}
enabled_units > "$root/tmp/before"
chroot "$root" apt-get -q update
chroot "$root" apt-get -q -y dist-upgrade
# shellcheck disable=SC2086 # $packages is a list of names
chroot "$root" apt-get -q -y --no-install-recommends install $packages
enabled_units > "$root/tmp/after"

sort "$root/tmp/before" > "$root/tmp/before.sorted"
sort "$root/tmp/after" | comm -13 "$root/tmp/before.sorted" - | while read -r unit; do
  if kept "${unit#sysv:}"; then continue; fi
  case "$unit" in
    sysv:*) chroot "$root" update-rc.d "${unit#sysv:}" disable || true ;;
    *) chroot "$root" systemctl disable "$unit" || true ;;
  esac
done
if [ -n "$facter" ]; then
  mkdir -p "$root/etc/facter"
  printf '%s' "$facter" > "$root/etc/facter/facter.conf"
  # This command fills the cache of facts. If puppet is installed, the cache also gets the facts of
  # modules.
  chroot "$root" sh -c 'if command -v puppet; then puppet facts; else facter; fi' > "$root/tmp/facts"
fi
chroot "$root" apt-get clean
# Build apt's cache of its package lists now. Facts of the packaged apt module run apt-get twice in
# each Puppet run, and apt-get is faster with this cache.
chroot "$root" apt-cache -q gencaches
rm -f "$root/usr/sbin/policy-rc.d"
: > "$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/var/lib/dbus/machine-id"
umount "$root/tmp" "$root/run"
# These files tell systemd that it has already updated /etc and /var for this /usr. Without them,
# each boot repeats the update.
touch "$root/etc/.updated" "$root/var/.updated"
sync -f "$root"
