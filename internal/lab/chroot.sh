# This script runs a command in its own namespaces, in a temporary copy of the base $base. The
# arguments are source, destination and mode of each bind, then --, then the command.
set -eu
mount -t tmpfs -o mode=755 tmpfs "$scratch"
root=$scratch/root
mkdir "$scratch/upper" "$scratch/work" "$root"
mount -t overlay -o "lowerdir=$base,upperdir=$scratch/upper,workdir=$scratch/work" overlay "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
cp /etc/resolv.conf "$root/etc/resolv.conf"
while [ "$1" != -- ]; do
  # Make and resolve the destination in the chroot. Outside of the chroot, an absolute link would lead
  # to another file.
  # shellcheck disable=SC2016
  if [ -d "$1" ]; then make='mkdir -p "$1"'; else make='mkdir -p "$(dirname "$1")" && touch "$1"'; fi
  into=$(chroot "$root" sh -c "$make && realpath \"\$1\"" sh "$2")
  mount --rbind "$1" "$root$into"
  if [ "$3" = ro ]; then mount -o remount,bind,ro "$root$into"; fi
  shift 3
done
shift
# Do not use exec here. The first process of a namespace ignores every signal that it does not
# handle. So this shell stays the first process, and the command gets the usual signals.
start=$dir
unset base scratch dir
# shellcheck disable=SC2016
chroot "$root" sh -c 'cd "$1" && shift && exec "$@"' sh "$start" "$@"
