package lab

import (
	"bytes"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/tutti-project/tutti"
)

// Host is a host of a lab that is up. The methods of a Host may be called concurrently.
type Host struct {
	Name    string     // the name in the lab file
	Names   []string   // all names; the first one is the full name
	Address netip.Addr // in the lab's subnet

	machine Machine
	state   state
	index   int
	cgroup  string
}

func (m Machine) host(s state, i int) *Host {
	h := s.Hosts[i]
	return &Host{Name: h.Name, Names: h.Names, Address: h.Address, machine: m, state: s, index: i, cgroup: s.cgroup(i)}
}

// Running reports whether the host's init process exists.
func (h *Host) Running() bool { return initOf(h.cgroup) != 0 }

func (h *Host) down() error {
	return tutti.Errorf(tutti.CodeUnavailable, "host %q does not run: `tutti lab start %s` boots it", h.Name, h.Name)
}

// Command returns a command for the caller to run. The command runs on the host as root, with its own environment and
// in the directory /. The caller may set its standard input and output. If the host does not run, the command returns
// an error that says so. When ctx ends, the command is killed together with all processes in its process group.
func (h *Host) Command(ctx context.Context, args ...string) *exec.Cmd {
	init := initOf(h.cgroup)
	if init == 0 {
		cmd := exec.CommandContext(ctx, "nsenter")
		cmd.Err = h.down()
		return cmd
	}
	cmd := exec.CommandContext(ctx, "nsenter", enter(init, args...)...)
	cmd.Env = hostEnv()
	setGroup(cmd)
	return cmd
}

// The function `enter` returns the arguments with which nsenter runs the command `args` in the namespaces of the
// process `init`.
func enter(init int, args ...string) []string {
	return append([]string{"--target", strconv.Itoa(init), "--all", "--root", "--wd", "--"}, args...)
}

// CopyIn copies a file or a directory of the outer machine to the host. The copy has the same modes and belongs to
// root. Destination is the path of the copy itself, not of the directory above it. CopyIn creates missing directories
// above the destination. If the destination is an existing directory, CopyIn adds the files to it. A single file
// appears only when it is complete.
func (h *Host) CopyIn(ctx context.Context, source, destination string) error {
	info, err := os.Stat(source)
	if err != nil {
		return tutti.Wrap(tutti.CodeNotFound, err, "copy to host %q", h.Name)
	}
	if info.IsDir() {
		return h.copyDir(ctx, source, destination)
	}
	f, err := os.Open(source)
	if err != nil {
		return err
	}
	defer f.Close()
	const script = `mkdir -p "$(dirname "$1")" && cat > "$1.part" && chmod "$2" "$1.part" && mv -f "$1.part" "$1"`
	cmd := h.Command(ctx, "sh", "-c", script, "sh", destination, fmt.Sprintf("%o", info.Mode().Perm()))
	cmd.Stdin = f
	return h.copied(cmd, source)
}

func (h *Host) copyDir(ctx context.Context, source, destination string) error {
	abs, err := filepath.Abs(source)
	if err != nil {
		return err
	}
	pack := exec.CommandContext(ctx, "tar", "-C", abs, "-c", ".")
	unpack := h.Command(ctx, "sh", "-c", `mkdir -p "$1" && tar -C "$1" --no-same-owner -x`, "sh", destination)
	if unpack.Stdin, err = pack.StdoutPipe(); err != nil {
		return err
	}
	if err := pack.Start(); err != nil {
		return err
	}
	if err := h.copied(unpack, source); err != nil {
		_ = pack.Process.Kill() // this tar may still wait until somebody reads its output
		_ = pack.Wait()
		return err
	}
	return pack.Wait()
}

func (h *Host) copied(cmd *exec.Cmd, source string) error {
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Run(); err != nil {
		return tutti.Wrap("", err, "copy %s to host %q: %s", source, h.Name, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// Exec replaces this process by a command on the host. So the command has this process's files, gets the terminal's
// signals, and sets the exit code. Exec returns only on an error.
func (h *Host) Exec(args ...string) error {
	init := initOf(h.cgroup)
	if init == 0 {
		return h.down()
	}
	path, err := exec.LookPath("nsenter")
	if err != nil {
		return err
	}
	return syscall.Exec(path, append([]string{"nsenter"}, enter(init, args...)...), hostEnv())
}
