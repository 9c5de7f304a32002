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

// Validate checks that both paths are absolute and that the source exists.
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

// Chroot is a command with a temporary copy of a base, in which the command runs.
type Chroot struct {
	Base   string // from Machine.Base
	Binds  []Bind
	Dir    string // directory in which the command starts. If Dir is empty, the directory is /
	Args   []string
	Env    []string // environment variables, in addition to a small default environment
	Stdin  io.Reader
	Stdout io.Writer
	Stderr io.Writer
}

//go:embed chroot.sh
var chrootScript string

// Run runs c with the network of the outer machine. If the command fails, Run returns its *exec.ExitError. Files that
// the command writes outside of its binds are only in memory and are deleted at the end. All processes of the command
// end when the command ends or when this process ends.
func (m Machine) Run(ctx context.Context, c Chroot) error {
	if err := Check(); err != nil {
		return err
	}
	if len(c.Args) == 0 {
		return tutti.Errorf(tutti.CodeInvalid, "run: no command given")
	}
	// The directory is only a mount point. Only the command sees the file system that is mounted there.
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

// hostEnv returns the environment of commands on hosts. From the outer machine's environment, commands get only the
// variable TERM.
func hostEnv() []string {
	env := []string{"PATH=" + systemPath, "HOME=/root", "USER=root", "LANG=C.UTF-8"}
	if term := os.Getenv("TERM"); term != "" {
		env = append(env, "TERM="+term)
	}
	return env
}
