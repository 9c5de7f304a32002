# Starts a host and ends when its systemd-nspawn is on its way. It runs in a mount
# namespace of its own, where alone the host's root is mounted.
# Arguments: options for systemd-nspawn.
mount -t overlay -o "lowerdir=$base,upperdir=$dir/upper,workdir=$dir/work" overlay "$dir/root"
# The machine's lock, descriptor 3, must not live as long as the host does.
systemd-nspawn --quiet --boot --register=no --keep-unit --resolv-conf=off --timezone=off \
  --link-journal=no --console=pipe --directory="$dir/root" "$@" 3>&- < /dev/null > "$dir/console.log" 2>&1 &
