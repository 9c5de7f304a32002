# Starts a relay, which the arguments are. The machine's lock, descriptor 3,
# must not live as long as it does.
"$@" 3>&- < /dev/null > "$log" 2>&1 &
