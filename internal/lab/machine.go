package lab

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// Where bases and the state of labs are kept if a Machine does not name other directories.
const (
	DefaultCache = "/var/cache/tutti/lab"
	DefaultState = "/var/lib/tutti/lab"
)

// Machine is the outer machine, on which hosts are made and which keeps bases and the state of labs. Several processes
// may call its methods at the same time. Locks on files serialise them. All of them need root on Linux.
type Machine struct {
	Cache  string    // bases; empty is DefaultCache
	State  string    // one directory per lab; empty is DefaultState
	Mirror string    // Debian mirror; empty is the machine's own, by its apt configuration
	Log    io.Writer // one line for each step that takes time; nil is silence
	// Program is the command that runs tutti. A slow link and the preparation of a base start it again, as `tutti lab
	// relay` and `tutti lab down`. Empty is the executable of this process, which must then be tutti.
	Program []string
}

func (m Machine) cache() string { return orDefault(m.Cache, DefaultCache) }
func (m Machine) state() string { return orDefault(m.State, DefaultState) }

// tutti is the command that runs tutti with these arguments.
func (m Machine) tutti(args ...string) ([]string, error) {
	program := m.Program
	if len(program) == 0 {
		self, err := os.Executable()
		if err != nil {
			return nil, err
		}
		program = []string{self}
	}
	return slices.Concat(program, args), nil
}

func orDefault(s, fallback string) string {
	if s == "" {
		return fallback
	}
	return s
}

func (m Machine) logf(format string, args ...any) {
	if m.Log != nil {
		fmt.Fprintf(m.Log, format+"\n", args...)
	}
}

// tools maps each command that a lab needs to the Debian package that has it.
var tools = map[string]string{
	"apt-get":        "apt",
	"bridge":         "iproute2",
	"debootstrap":    "debootstrap",
	"ip":             "iproute2",
	"nft":            "nftables",
	"nsenter":        "util-linux",
	"systemd-nspawn": "systemd-container",
	"tar":            "tar",
	"unshare":        "util-linux",
}

// Check says in one error why labs cannot be made here: the system is not Linux, the user is not root, or packages must
// be installed.
func Check() error {
	if runtime.GOOS != "linux" {
		return tutti.Errorf(tutti.CodeInvalid, "a lab needs Linux: its hosts are made of namespaces, which %s does not have", runtime.GOOS)
	}
	if os.Geteuid() != 0 {
		return tutti.Errorf(tutti.CodeRefused, "a lab needs root: it makes namespaces, mounts and a bridge; run it again with sudo")
	}
	var missing, packages []string
	for tool, pkg := range tools {
		if _, err := exec.LookPath(tool); err != nil {
			missing, packages = append(missing, tool), append(packages, pkg)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	slices.Sort(missing)
	slices.Sort(packages)
	return tutti.Errorf(tutti.CodeInvalid, "a lab needs %s; install with: apt-get install -y %s",
		strings.Join(missing, ", "), strings.Join(slices.Compact(packages), " "))
}

// lockEvery is how often a held lock is tried again. It is short compared with the work on a lab, and long compared
// with the cost of a try.
const lockEvery = 50 * time.Millisecond

// lock holds the lock file at path until the returned file is closed, also in commands that inherited it. It waits for
// another holder until ctx ends. The file stays: if it were removed, a third process could lock another file of the
// same name.
func (m Machine) lock(ctx context.Context, path string) (*os.File, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock: %w", err)
	}
	for said := false; ; said = true {
		held, err := tryLock(f)
		if err != nil {
			f.Close()
			return nil, fmt.Errorf("lock %s: %w", path, err)
		}
		if held {
			return f, nil
		}
		if !said {
			m.logf("waiting for another process that holds %s", path)
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the lock %s", path)
		case <-time.After(lockEvery):
		}
	}
}
