# This script puts its own shell into control groups. All processes that the shell starts are then
# in these groups, too. The arguments are the number of control groups, the directories of the
# groups, and then the arguments of the script that follows this one.
set -eu
count=$1
shift
while [ "$count" -gt 0 ]; do
  mkdir -p "$1"
  echo $$ > "$1/cgroup.procs"
  shift
  count=$((count - 1))
done
