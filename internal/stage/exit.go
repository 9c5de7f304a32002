package stage

import (
	"errors"
	"os/exec"

	"github.com/tutti-project/tutti/internal/cli"
)

// commandExit turns the failure of a command that ran for the caller into the
// command's own exit code. For a signal the code is as in shells.
func commandExit(err error) error {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return err
	}
	if code := exit.ExitCode(); code >= 0 {
		return cli.CommandExit(code)
	}
	return cli.CommandExit(128 + 9) // only a kill ends attached commands
}
