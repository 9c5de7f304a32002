# Waits until the process has ended that holds the other end of standard input, and
# then becomes the command that the arguments are.
cat
exec "$@" < /dev/null > /dev/null 2>&1
