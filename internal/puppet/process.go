package puppet

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/tutti-project/tutti/internal/excerpt"
	"github.com/tutti-project/tutti/internal/pidfd"
)

// Process is a launcher, started by us or by an agent before us.
type Process struct {
	pid   int
	start uint64 // field 22 of /proc/PID/stat: pids are used again
	scope string // the systemd scope that it is in, if systemd runs
	child *exec.Cmd
}

// Start starts the launcher of a run's directory.
func Start(install Installation, dir string, o Order) (*Process, error) {
	cmd := inScope(scopeOf(dir), "Puppet run "+string(o.Run), []string{install.Ruby, o.Launcher, dir})
	stdout, err := os.OpenFile(filepath.Join(dir, "stdout"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer stdout.Close()
	stderr, err := os.OpenFile(filepath.Join(dir, "stderr"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	start, _ := startTime(cmd.Process.Pid)
	return &Process{pid: cmd.Process.Pid, start: start, scope: scopeOf(dir), child: cmd}, nil
}

// inScope is a command in a session of its own and, where systemd runs, in a scope of
// its own: neither the end nor the upgrade of the agent reaches it.
func inScope(unit, description string, argv []string, options ...string) *exec.Cmd {
	if systemd() {
		run := append([]string{"/usr/bin/systemd-run", "--scope", "--quiet", "--collect", "--unit=" + unit, "--description=" + description}, options...)
		argv = append(run, argv...)
	}
	// No context: the process must live on when whoever waits for it does not.
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // see above
	cmd.Dir, cmd.Env = "/", cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// scopeOf names the scope of the run whose directory it is.
func scopeOf(dir string) string { return "tutti-run-" + filepath.Base(dir) + ".scope" }

func systemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil && executable("/usr/bin/systemd-run")
}

// cleanEnv is the same whoever started the agent, so that runs do not differ
// by it.
func cleanEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/puppetlabs/bin",
		"HOME=/root", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}
}

// Adopt returns the launcher that still runs for a directory, or nil if there
// is none. It believes pid and start time; a launcher that had no time to write
// them, or whose file a loss of power has left empty, is found by its arguments.
func Adopt(dir string) (*Process, error) {
	if p, err := noted(dir); err == nil {
		if !alive(p.pid, p.start) {
			return nil, nil
		}
		return p, nil
	}
	var found *Process
	err := eachProcess(func(pid int, argv []string) bool {
		if len(argv) > 1 && argv[len(argv)-1] == dir && strings.HasSuffix(argv[len(argv)-2], "puppet-tutti") {
			if start, err := startTime(pid); err == nil {
				found = &Process{pid: pid, start: start, scope: scopeOf(dir)}
			}
		}
		return found == nil
	})
	return found, err
}

// noted is the process that pid names, perhaps gone by now. Without its start time any
// process could be taken for ours, and be ended.
func noted(dir string) (*Process, error) {
	var file struct {
		PID   int    `json:"pid"`
		Start uint64 `json:"start"`
	}
	raw, err := excerpt.Read(filepath.Join(dir, "pid"), 1<<10)
	if err == nil {
		err = json.Unmarshal(raw, &file)
	}
	if err == nil && (file.PID <= 1 || file.Start == 0) {
		err = fmt.Errorf("%s names no process", filepath.Join(dir, "pid"))
	}
	return &Process{pid: file.PID, start: file.Start, scope: scopeOf(dir)}, err
}

// alive reports whether the process that had the pid at that time is there.
func alive(pid int, start uint64) bool {
	now, err := startTime(pid)
	return err == nil && (start == 0 || now == start)
}

// startTime reads field 22 of /proc/PID/stat.
func startTime(pid int) (uint64, error) {
	fields, err := stat(pid)
	if err != nil {
		return 0, err
	}
	if fields[0] == "Z" {
		return 0, os.ErrProcessDone
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// stat returns the fields of /proc/PID/stat from the third on; the second may
// hold spaces and brackets, so fields count from its last bracket.
func stat(pid int) ([]string, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	_, rest, ok := bytes.Cut(raw[max(0, bytes.LastIndexByte(raw, ')')):], []byte(" "))
	fields := strings.Fields(string(rest))
	if !ok || len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat: %d fields", pid, len(fields))
	}
	return fields, nil
}

// Wait returns nil when the process is gone, or the cause of ctx's end.
func (p *Process) Wait(ctx context.Context) error {
	if alive(p.pid, p.start) {
		if err := pidfd.Wait(ctx, p.pid); err != nil {
			return err
		}
	}
	p.reap()
	return nil
}

// reap collects our own child; its status is not what we judge by.
func (p *Process) reap() {
	if p.child != nil {
		_ = p.child.Wait()
	}
}

// Strangers names the Puppets that take no lock, a person's `puppet apply`, by
// their pids: those of this system, not of its containers, which have processes of
// their own. Their arguments are not ours to keep: `-e` may hold a password.
func Strangers() ([]string, error) {
	var out []string
	space := processSpace("self")
	err := eachProcess(func(pid int, argv []string) bool {
		for i, arg := range argv {
			if i+1 < len(argv) && i <= 1 && filepath.Base(arg) == "puppet" && argv[i+1] == "apply" && processSpace(strconv.Itoa(pid)) == space {
				out = append(out, fmt.Sprintf("puppet apply, pid %d", pid))
			}
		}
		return true
	})
	return out, err
}

// processSpace names the PID namespace of a process; empty if it is gone.
func processSpace(pid string) string {
	space, err := os.Readlink("/proc/" + pid + "/ns/pid")
	if err != nil {
		return ""
	}
	return space
}

// eachProcess calls f with every process's arguments until f returns false. One that
// is about to become another program (execve) has none for a moment, and is left out.
func eachProcess(f func(pid int, argv []string) bool) error {
	all, err := processes()
	if err != nil {
		return err
	}
	for _, pid := range all {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
		if err != nil || len(raw) == 0 {
			continue // gone, or a kernel thread
		}
		if !f(pid, strings.Split(strings.TrimRight(string(raw), "\x00"), "\x00")) {
			return nil
		}
	}
	return nil
}

// processes are all that there are now, kernel threads included.
func processes() ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var out []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil {
			out = append(out, pid)
		}
	}
	return out, nil
}
