# This script bootstraps a plain base into $root. It runs in its own namespaces.
set -eu
set -- --variant=minbase
if [ -n "$keyring" ]; then set -- "$@" --keyring="$keyring"; fi
debootstrap "$@" \
  --include=systemd,systemd-sysv,dbus,libpam-systemd,iproute2,iputils-ping,ca-certificates,curl,netbase,procps \
  "$release" "$root" "$mirror"

# If Debian has not signed the mirror, the hosts need the mirror's own keyring.
case "$keyring" in
  ''|/usr/share/keyrings/debian-archive-keyring.*) ;;
  *) cp "$keyring" "$root/etc/apt/trusted.gpg.d/" ;;
esac
printf '%s' "$sources" > "$root/etc/apt/sources.list"
printf '%s' "$settings" > "$root/etc/apt/apt.conf.d/90lab"
cp /etc/resolv.conf "$root/etc/resolv.conf"
chroot "$root" apt-get -q update
chroot "$root" apt-get clean

# Disable units that would use dpkg's lock or the processors at random times.
for unit in apt-daily.timer apt-daily-upgrade.timer dpkg-db-backup.timer e2scrub_all.timer \
    e2scrub_reap.service fstrim.timer man-db.timer logrotate.timer systemd-firstboot.service \
    console-getty.service getty.target systemd-networkd-wait-online.service; do
  ln -sf /dev/null "$root/etc/systemd/system/$unit"
done
: > "$root/etc/machine-id"
rm -f "$root/etc/hostname" "$root/var/lib/dbus/machine-id" "$root"/var/log/*.log
# These files tell systemd that it has already updated /etc and /var for this /usr. Without them,
# each boot repeats the update.
touch "$root/etc/.updated" "$root/var/.updated"
sync -f "$root"
