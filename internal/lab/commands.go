package lab

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// The type `commands` runs the short commands that create and remove a lab. Each command inherits the machine's
// lock. If this process is killed, the lock stays locked until the last command has ended. So another process
// gets the lock only after these commands have ended, and then sees everything that they made.
type commands struct{ lock *os.File }

// The method `run` executes a command with the given standard input. If the command fails, the error
// contains its output.
func (x commands) run(ctx context.Context, stdin, name string, args ...string) error {
	cmd := x.command(ctx, name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return commandError(cmd, err, out)
	}
	return nil
}

func (x commands) output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := x.command(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", commandError(cmd, err, stderr.Bytes())
	}
	return string(out), nil
}

func (x commands) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = hostEnv()
	cmd.ExtraFiles = []*os.File{x.lock}
	return cmd
}

func commandError(cmd *exec.Cmd, err error, said []byte) error {
	what := strings.Join(cmd.Args, " ")
	if text := strings.TrimSpace(string(said)); text != "" {
		return fmt.Errorf("%s: %w: %s", what, err, text)
	}
	return fmt.Errorf("%s: %w", what, err)
}
