# This script starts its arguments as a command. The command is a relay. Descriptor 3 is the
# machine's lock. The relay must not inherit it, because the relay would keep the lock locked.
"$@" 3>&- < /dev/null > "$log" 2>&1 &
