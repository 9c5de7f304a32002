package stage

import (
	"errors"
	"os/exec"

	"github.com/tutti-project/tutti/internal/cli"
)

// commandExit turns the failure of a command that ran for the caller into the exit code
// of that command. If a signal ended the command, the code is the same as in shells.
func commandExit(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	if code := exit.ExitCode(); code >= 0 {
		return cli.CommandExit(code)
	}
	return cli.CommandExit(128 + 9) // the only signal that ends attached commands is SIGKILL
}
