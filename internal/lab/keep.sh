# Copies what a host became, which is its layer $dir/upper over its base $from, to
# $root, in namespaces of its own. Nothing that was the host's alone is kept: the
# files $own, further identities, and what its logs say.
set -eu
mount -t overlay -o "ro,lowerdir=$dir/upper:$from" overlay "$dir/root"
cp -a --reflink=auto "$dir/root" "$root"
for file in $own; do
  rm -f "$root/$file"
  if [ -e "$from/$file" ]; then cp -a "$from/$file" "$root/$file"; fi
done
rm -f "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed"
find "$root/var/log" -type f -exec truncate -s 0 {} +
# Tells systemd that /usr has been looked at, or each boot does so again.
touch "$root/etc/.updated" "$root/var/.updated"
sync -f "$root"
