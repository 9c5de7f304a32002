# This script starts a host and ends as soon as it has started systemd-nspawn. The script runs in
# its own mount namespace. The host's root is mounted only in this namespace. The arguments are
# options for systemd-nspawn.
mount -t overlay -o "lowerdir=$base,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/root"
# Descriptor 3 is the machine's lock. The host must not inherit it, because the host would keep the
# lock locked.
systemd-nspawn --quiet --boot --register=no --keep-unit --resolv-conf=off --timezone=off \
  --link-journal=no --console=pipe --directory="$dir/root" "$@" 3>&- < /dev/null > "$dir/console.log" 2>&1 &
