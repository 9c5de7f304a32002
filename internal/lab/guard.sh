# This script waits for the end of its standard input. Standard input is a pipe, and it ends when
# the process at its other end ends. Then the script executes its arguments as a command.
cat
exec "$@" < /dev/null > /dev/null 2>&1
