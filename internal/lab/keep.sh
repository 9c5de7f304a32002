# This script copies the files of a host to $root. It runs in its own namespaces. The host's files
# are its layer $dir/upper over its base $from. The copy does not contain the data of this one host:
# the files $own, identities such as the machine id, and the content of logs.
set -eu
mount -t overlay -o "ro,lowerdir=$dir/upper:$from" overlay "$dir/root"
cp -a --reflink=auto "$dir/root" "$root"
for file in $own; do
  rm -f "$root/$file"
  if [ -e "$from/$file" ]; then cp -a "$from/$file" "$root/$file"; fi
done
rm -f "$root/var/lib/dbus/machine-id" "$root/var/lib/systemd/random-seed"
find "$root/var/log" -type f -exec truncate -s 0 {} +
# These files tell systemd that it has already updated /etc and /var for this /usr. Without them,
# each boot repeats the update.
touch "$root/etc/.updated" "$root/var/.updated"
sync -f "$root"
