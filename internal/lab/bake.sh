# Copies the plain base $from to $root and installs $packages, in namespaces of
# its own. What they install is there but not enabled and not started: on a host
# Puppet, or who made the lab, decides what runs.
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

enabled() {
  chroot "$root" systemctl list-unit-files --no-legend --no-pager --state=enabled | cut -d' ' -f1 | sort
  for script in "$root"/etc/init.d/*; do
    if [ -e "$script" ]; then echo "sysv:${script##*/}"; fi
  done
}
enabled > "$root/tmp/before"
chroot "$root" apt-get -q update
# shellcheck disable=SC2086 # a list of package names
chroot "$root" apt-get -q -y --no-install-recommends install $packages
enabled > "$root/tmp/after"

sort "$root/tmp/before" > "$root/tmp/before.sorted"
sort "$root/tmp/after" | comm -13 "$root/tmp/before.sorted" - | while read -r unit; do
  case "$unit" in
    sysv:*) chroot "$root" update-rc.d "${unit#sysv:}" disable || true ;;
    *) chroot "$root" systemctl disable "$unit" || true ;;
  esac
done
if [ -n "$facter" ]; then
  mkdir -p "$root/etc/facter"
  printf '%s' "$facter" > "$root/etc/facter/facter.conf"
  chroot "$root" facter > "$root/tmp/facts"
fi
chroot "$root" apt-get clean
rm -f "$root/usr/sbin/policy-rc.d"
: > "$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/var/lib/dbus/machine-id"
umount "$root/tmp" "$root/run"
# Tells systemd that /usr has been looked at, or each boot does so again.
touch "$root/etc/.updated" "$root/var/.updated"
sync -f "$root"
