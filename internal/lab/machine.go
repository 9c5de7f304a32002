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

// These are the directories for bases and for the state of labs if a Machine does not name other ones.
const (
	DefaultCache = "/var/cache/tutti/lab"
	DefaultState = "/var/lib/tutti/lab"
)

// Machine is the outer machine. Hosts run on this machine, and the machine stores the bases and the state of labs.
// Several processes may call its methods at the same time, because the methods lock files. All methods need root on
// Linux.
type Machine struct {
	Cache  string    // bases; empty is DefaultCache
	State  string    // one directory for each lab. If State is empty, DefaultState is used
	Mirror string    // a Debian mirror. If Mirror is empty, the machine's apt configuration decides
	Log    io.Writer // Log gets one line for each step that takes time. If Log is nil, nothing is logged
	// Program is the command that runs tutti. A slow link runs Program as `tutti lab relay`, and the preparation of a
	// base runs it as `tutti lab down`. If Program is empty, the executable of this process is used, which must then
	// be tutti.
	Program []string
}

func (m Machine) cache() string { return orDefault(m.Cache, DefaultCache) }
func (m Machine) state() string { return orDefault(m.State, DefaultState) }

// The method `tutti` returns the command line that runs tutti with these arguments.
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

// The map `tools` has, for each command that a lab needs, the Debian package of the command.
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

// Check returns one error with all reasons why this machine cannot run labs. The system may not be Linux, the user
// may not be root, or packages may be missing.
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

// lockEvery is how often lock tries again while another process has the lock. The interval is short compared to the
// work on a lab, and long compared to the cost of one try.
const lockEvery = 50 * time.Millisecond

// The method `lock` locks the file at `path` until the returned file is closed. Commands that inherit the file must
// also close the file. If another process has the lock, the method waits until ctx ends. The lock file is never
// removed. If a process removed it, another process could lock a new file with the same name.
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
