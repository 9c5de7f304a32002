package collect

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/doctor"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/space"
)

// Part is a server or an agent on this machine.
type Part struct {
	Verb     string   // the command's verb: "server" or "agent"
	Dir      string   // the directory of the part
	Unit     string   // the name of its systemd unit
	UnitDirs []string // the directories in which to look for units
	Keeps    uint64   // bytes of the disk that the part reserves for work that has begun
}

// Process examines the processes, the disk, the credentials' permissions and the unit of a part. Fields that Process
// cannot determine stay empty.
func Process(ctx context.Context, of Part) doctor.Process {
	verb, dir, keeps := of.Verb, of.Dir, of.Keeps
	p := doctor.Process{Dir: dir, Keeps: keeps}
	pid := Holder(filepath.Join(dir, "lock"))
	p.Running = pid != 0
	if exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)); err == nil {
		p.Replaced = strings.HasSuffix(exe, " (deleted)")
	}
	p.Pids = pidsOf(verb, dir)
	if room, err := space.Of(dir); err == nil {
		p.Free, p.Keeps = room.Free, min(keeps, room.Total/20)
	}
	_ = filepath.WalkDir(filepath.Join(dir, "identity"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return nil //nolint:nilerr // skip files that cannot be read
		}
		if info, err := e.Info(); err == nil && info.Mode().Perm()&0o077 != 0 {
			p.Exposed = append(p.Exposed, path)
		}
		return nil
	})
	if durable.Exists("/run/systemd/system") && slices.ContainsFunc(of.UnitDirs, func(at string) bool { return durable.Exists(filepath.Join(at, of.Unit)) }) {
		p.Unit = of.Unit
		p.Enabled = exec.CommandContext(ctx, "systemctl", "is-enabled", "--quiet", of.Unit).Run() == nil
		if !p.Running {
			said, _ := exec.CommandContext(ctx, "journalctl", "-q", "-n", "1", "-o", "cat", "-t", "tutti", "-u", of.Unit).Output()
			p.Said = strings.TrimSpace(string(said))
		}
	}
	return p
}

// Holder returns the process that holds a lock file, or 0 if no process holds it.
func Holder(path string) int {
	var st syscall.Stat_t
	if syscall.Stat(path, &st) != nil {
		return 0
	}
	raw, _ := os.ReadFile("/proc/locks")
	for line := range strings.Lines(string(raw)) {
		fields := strings.Fields(line)
		if len(fields) < 6 || fields[1] != "FLOCK" || !strings.HasSuffix(fields[5], fmt.Sprintf(":%d", st.Ino)) {
			continue
		}
		if pid, err := strconv.Atoi(fields[4]); err == nil {
			return pid
		}
	}
	return 0
}

// pidsOf returns the processes `tutti VERB` of a directory.
func pidsOf(verb, dir string) []int {
	var out []int
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, path := range found {
		raw, err := os.ReadFile(path)
		args := strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")
		if err != nil || len(args) < 2 || filepath.Base(args[0]) != "tutti" || args[1] != verb || len(args) > 2 && !strings.HasPrefix(args[2], "-") {
			continue
		}
		of := map[string]string{"server": cli.DefaultServerDir, "agent": cli.DefaultAgentDir}[verb]
		if i := slices.Index(args, "--dir"); i > 0 && i+1 < len(args) {
			of = args[i+1]
		}
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && sameDir(pid, of, dir) {
			out = append(out, pid)
		}
	}
	return out
}

// sameDir reports whether a path is the directory dir. The path is resolved as the
// process sees it.
func sameDir(pid int, of, dir string) bool {
	if !filepath.IsAbs(of) {
		cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
		if err != nil {
			return false
		}
		of = filepath.Join(cwd, of)
	}
	return filepath.Clean(of) == dir
}
