# Puts this shell, and with it what it starts, into control groups.
# Arguments: how many control groups, those, then what follows.
set -eu
count=$1
shift
while [ "$count" -gt 0 ]; do
  mkdir -p "$1"
  echo $$ > "$1/cgroup.procs"
  shift
  count=$((count - 1))
done
