package puppet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-project/tutti/internal/puppet"
)

// TestKill ends a launcher whose command has its own session and a child. Puppet gives
// every command its own session.
func TestKill(t *testing.T) {
	dir := t.TempDir()
	pipe, launcher := filepath.Join(dir, "pids"), filepath.Join(dir, "puppet-tutti")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("setsid sh -c 'sleep 1000 & echo $$ $! > %s; wait' &\nwait\n", pipe)
	if err := os.WriteFile(launcher, []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := puppet.Start(puppet.Installation{Ruby: "/bin/sh"}, dir, puppet.Order{Launcher: launcher})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := os.ReadFile(pipe) // waits until the command writes into the pipe
	if err != nil {
		t.Fatal(err)
	}
	var command, child int
	if _, err := fmt.Sscan(string(raw), &command, &child); err != nil {
		t.Fatalf("%q: %v", raw, err)
	}
	if err := p.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, pid := range []int{command, child} {
		if !gone(pid) {
			t.Errorf("process %d is still there", pid)
		}
	}
}

// gone returns true if a process has ended. A zombie (state Z) has also ended.
func gone(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(raw), ") Z ")
}
