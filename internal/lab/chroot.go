package lab

import (
	"context"
	_ "embed"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/tutti-project/tutti"
)

// Bind makes a file or directory of the outer machine visible in a chroot or on
// a host.
type Bind struct {
	Source      string
	Destination string
	ReadOnly    bool
}

// Validate requires absolute paths and a source that exists.
func (b Bind) Validate() error {
	if !filepath.IsAbs(b.Source) || !filepath.IsAbs(b.Destination) {
		return tutti.Errorf(tutti.CodeInvalid, "bind %s:%s: both paths must be absolute", b.Source, b.Destination)
	}
	if _, err := os.Stat(b.Source); err != nil {
		return tutti.Wrap(tutti.CodeNotFound, err, "bind %s:%s", b.Source, b.Destination)
	}
	return nil
}

func (b Bind) mode() string {
	if b.ReadOnly {
		return "ro"
	}
	return "rw"
}

// Chroot is a command that runs in a throwaway copy of a base.
type Chroot struct {
	Base   string // from Machine.Base
	Binds  []Bind
	Dir    string // directory in which the command starts; empty is /
	Args   []string
	Env    []string // added to a small default environment
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

//go:embed chroot.sh
var chrootScript string

// Run runs c on the network of the outer machine. If the command fails, Run returns its *exec.ExitError. What it writes
// outside of its binds is in memory and is lost at the end. Nothing that it starts outlives it or this process.
func (m Machine) Run(ctx context.Context, c Chroot) error {
	if err := Check(); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return tutti.Errorf(tutti.CodeInvalid, "run: no command given")
	}
	// Only a mount point: only the command sees what is mounted there.
	scratch := filepath.Join(m.cache(), "scratch")
	if err := os.MkdirAll(scratch, 0o700); err != nil {
		return err
	}
	args := []string{"sh", "-c", chrootScript, "sh"}
	for _, b := range c.Binds {
		if err := b.Validate(); err != nil {
			return err
		}
		args = append(args, b.Source, b.Destination, b.mode())
	}
	args = append(append(args, "--"), c.Args...)
	cmd := exec.CommandContext(ctx, "unshare", contained(args...)...)
	cmd.Env = append(hostEnv(), c.Env...)
	cmd.Env = append(cmd.Env, "base="+c.Base, "scratch="+scratch, "dir="+orDefault(c.Dir, "/"))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, c.Stderr
	return runAttached(cmd)
}

// hostEnv is the environment of commands on hosts. From the outer machine it has only the terminal.
func hostEnv() []string {
	env := []string{"PATH=" + systemPath, "HOME=/root", "USER=root", "LANG=C.UTF-8"}
	if term := os.Getenv("TERM"); term != "" {
		env = append(env, "TERM="+term)
	}
	return env
}
