package puppet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const killAfter = 10 * time.Second

// Kill ends the process and everything that it started. Kill sends SIGTERM first, and SIGKILL after ten
// seconds. If Puppet handed a service to systemd, the service does not belong to the process and stays.
func (p *Process) Kill(ctx context.Context) error {
	if !alive(p.pid, p.start) {
		return nil
	}
	// Puppet gives every command its own session. When Puppet ends, its children lose their parent. Kill
	// therefore looks for the children before and after Puppet's end.
	started := p.descendants()
	if err := p.end(ctx); err != nil {
		return err
	}
	for _, left := range append(started, p.inScope()...) {
		if err := left.end(ctx); err != nil {
			return err
		}
	}
	return nil
}

// The method `end` ends one process.
func (p *Process) end(ctx context.Context) error {
	for _, signal := range []unix.Signal{unix.SIGTERM, unix.SIGKILL} {
		if !alive(p.pid, p.start) {
			break
		}
		if err := unix.Kill(p.pid, signal); err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("end process %d: %w", p.pid, err)
		}
		patience, cancel := context.WithTimeout(ctx, killAfter)
		err := p.Wait(patience)
		cancel()
		if err == nil {
			return nil
		}
	}
	if alive(p.pid, p.start) {
		return fmt.Errorf("process %d does not end", p.pid)
	}
	p.reap()
	return nil
}

// descendants returns all processes below p, parents first.
func (p *Process) descendants() []*Process {
	children := map[int][]*Process{}
	all, _ := processes() // without /proc, no process can be found
	for _, pid := range all {
		fields, err := stat(pid)
		if err != nil {
			continue // gone in the meantime
		}
		parent, _ := strconv.Atoi(fields[1])
		if start, err := startTime(pid); err == nil {
			children[parent] = append(children[parent], &Process{pid: pid, start: start})
		}
	}
	out := children[p.pid]
	for i := 0; i < len(out); i++ { // out grows in the loop
		out = append(out, children[out[i].pid]...)
	}
	return out
}

// inScope returns the processes in the run's scope, including those that have left their
// parents.
func (p *Process) inScope() []*Process {
	if p.scope == "" {
		return nil
	}
	var out []*Process
	all, _ := processes() // see descendants
	for _, pid := range all {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
		if err != nil || !strings.Contains(string(raw), "/"+p.scope) {
			continue
		}
		if start, err := startTime(pid); err == nil {
			out = append(out, &Process{pid: pid, start: start})
		}
	}
	return out
}
