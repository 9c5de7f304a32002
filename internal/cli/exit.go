package cli

import "fmt"

// CommandExit is the exit code of a command that tutti ran for the caller and
// that has said itself what it had to say. Main ends with this code, silently.
type CommandExit int

// Error says which code.
func (e CommandExit) Error() string {
	return fmt.Sprintf("the command ended with exit code %d", int(e))
}
