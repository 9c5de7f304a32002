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

// Process is a launcher that this agent or an earlier one started.
type Process struct {
	pid   int
	start uint64 // field 22 of /proc/PID/stat, needed because pids are reused
	scope string // the systemd scope of the process, if systemd runs
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

// inScope returns a command in its own session. If systemd is running, the command also gets its own scope. The
// end or the upgrade of the agent therefore does not affect the command.
func inScope(unit, description string, argv []string, options ...string) *exec.Cmd {
	if systemd() {
		run := append([]string{"/usr/bin/systemd-run", "--scope", "--quiet", "--collect", "--unit=" + unit, "--description=" + description}, options...)
		argv = append(run, argv...)
	}
	// Use no context, because the process must continue when its caller ends.
	cmd := exec.Command(argv[0], argv[1:]...) //nolint:noctx // see above
	cmd.Dir, cmd.Env = "/", cleanEnv()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// scopeOf returns the name of the scope of the run in dir.
func scopeOf(dir string) string { return "tutti-run-" + filepath.Base(dir) + ".scope" }

func systemd() bool {
	_, err := os.Stat("/run/systemd/system")
	return err == nil && executable("/usr/bin/systemd-run")
}

// cleanEnv returns the environment of a run. The environment does not depend on who started the agent, so it is
// the same for all runs.
func cleanEnv() []string {
	return []string{
		"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/opt/puppetlabs/bin",
		"HOME=/root", "LANG=C.UTF-8", "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive",
	}
}

// Adopt returns the launcher that is still running for a run's directory, or nil if there is none. Adopt finds
// the launcher by the pid and the start time in the file `pid`. The launcher may have had no time to write
// this file, or a power failure may have left it empty. In that case, Adopt finds the launcher by its
// arguments.
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

// noted returns the process that the file `pid` names. The process may be gone by now. Without the start time in this
// file, the agent could mistake another process for ours, and end that process.
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

// alive reports whether the process with that pid and start time exists.
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

// stat returns the fields of /proc/PID/stat from the third field on. The second field may contain spaces and brackets,
// so stat counts the fields from the last bracket.
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

// Wait waits until the process is gone, and then returns nil. If ctx ends first, Wait
// returns the cause.
func (p *Process) Wait(ctx context.Context) error {
	if alive(p.pid, p.start) {
		if err := pidfd.Wait(ctx, p.pid); err != nil {
			return err
		}
	}
	p.reap()
	return nil
}

// reap waits for the launcher if this agent started it, so that no zombie is left. The exit status
// does not matter for the judgement of the run.
func (p *Process) reap() {
	if p.child != nil {
		_ = p.child.Wait()
	}
}

// Strangers names the Puppet processes that take no lock, such as a person's `puppet apply`, by their pids.
// Strangers does not name processes in containers of this system. Strangers does not keep the arguments, because
// `-e` may contain a password.
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

// processSpace names the PID namespace of a process. The function returns an empty string
// if the process is gone.
func processSpace(pid string) string {
	space, err := os.Readlink("/proc/" + pid + "/ns/pid")
	if err != nil {
		return ""
	}
	return space
}

// eachProcess calls f with every process's arguments until f returns false. The function leaves out a process that
// is about to become another program (execve), because such a process has no arguments for a moment.
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

// processes returns the pids of all processes, including kernel threads.
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
