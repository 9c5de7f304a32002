//go:build e2e

package lab

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

func TestDownLeavesNothing(t *testing.T) {
	m := testMachine(t)
	before := traces(t, m)
	up(t, m, twoHosts("one"))
	if cmp.Equal(before, traces(t, m)) {
		t.Fatal("a lab that is up leaves no trace: this test sees nothing")
	}
	if err := m.Down(t.Context(), ""); err != nil {
		t.Fatal(err)
	}
	wantTraces(t, m, before)
	if err := m.Down(t.Context(), "one"); tutti.CodeOf(err) != tutti.CodeNotFound {
		t.Errorf("down of a lab that is gone: got %v, want not found", err)
	}
}

// TestDownAfterKill kills the process that creates a lab. Each subtest kills the process as soon as
// one more part of the lab exists.
func TestDownAfterKill(t *testing.T) {
	if _, err := (Machine{}).Base(t.Context(), Definition{}); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		reason string
		there  func(s state) bool
	}{
		"directory": {"nothing is made yet, not even the state", func(s state) bool { return exists(s.dir) }},
		"state":     {"the state is there and nothing else", func(s state) bool { return exists(filepath.Join(s.dir, stateFile)) }},
		"bridge":    {"half of the network", func(s state) bool { return link(s.bridge()) }},
		"files":     {"the first host's files", func(s state) bool { return exists(s.hostDir(0)) }},
		"namespace": {"a namespace that a mount keeps", func(s state) bool { return mounted(s.netns(0)) || mounted(s.netns(1)) }},
		"veth":      {"a host's network", func(s state) bool { return link(s.veth(0)) || link(s.veth(1)) }},
		"group":     {"a host about to start", func(s state) bool { return grouped(s.cgroup(0)) || grouped(s.cgroup(1)) }},
		"init":      {"a host that boots", func(s state) bool { return initOf(s.cgroup(0)) != 0 }},
		"both":      {"all hosts boot", func(s state) bool { return initOf(s.cgroup(0)) != 0 && initOf(s.cgroup(1)) != 0 }},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := testMachine(t)
			before := traces(t, m)
			cmd := actor(m, "up")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			s := state{dir: m.labDir("killed")}
			seen := eventually(time.Minute, func() bool { return tt.there(s) })
			if err := cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			err := cmd.Wait()
			if !seen {
				t.Fatalf("%s: never seen (%v)", tt.reason, err)
			}
			if err := m.Down(t.Context(), "killed"); err != nil {
				t.Fatalf("%s: %v", tt.reason, err)
			}
			wantTraces(t, m, before)
		})
	}
}

func TestUpCleansUpAfterItself(t *testing.T) {
	m := testMachine(t)
	before := traces(t, m)
	spec := twoHosts("one")
	// The source is a directory, and the destination is a file in every base, so the mount always fails.
	spec.Binds = []Bind{{Source: m.State, Destination: "/etc/passwd", ReadOnly: true}}
	if _, err := m.Up(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "a-01") {
		t.Errorf("a host that cannot start: got %v, want an error that names it", err)
	}
	wantTraces(t, m, before)
}

func TestInterruptedUpCleansUp(t *testing.T) {
	m := testMachine(t)
	before := traces(t, m)
	cmd := actor(m, "up")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s := state{dir: m.labDir("killed")}
	if !eventually(time.Minute, func() bool { return initOf(s.cgroup(0)) != 0 }) {
		t.Error("the host never booted")
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // the error is expected, because the test has interrupted the process
	wantTraces(t, m, before)
}

// wantTraces waits until the machine is as before. The kernel removes
// namespaces some time after their last process.
func wantTraces(t *testing.T, m Machine, before []string) {
	t.Helper()
	var diff string
	same := eventually(30*time.Second, func() bool {
		diff = cmp.Diff(before, traces(t, m))
		return diff == ""
	})
	if !same {
		t.Errorf("left on the machine: -before +after\n%s", diff)
	}
	if entries, err := os.ReadDir(m.State); err != nil || len(entries) > 0 {
		t.Errorf("left in the state directory: %v, %v", entries, err)
	}
}

// The function `eventually` calls the function `so` again and again, until `so` returns true or the time limit is
// over.
func eventually(limit time.Duration, so func() bool) bool {
	end := time.After(limit)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-end:
			return false
		case <-tick.C:
		}
	}
	return true
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func link(name string) bool {
	_, err := net.InterfaceByName(name)
	return err == nil
}

func grouped(name string) bool {
	for _, dir := range cgroupDirs(name) {
		if exists(dir) {
			return true
		}
	}
	return false
}

func mounted(path string) bool {
	mounts, err := os.ReadFile("/proc/self/mounts")
	return err == nil && strings.Contains(string(mounts), fmt.Sprintf(" %s ", path))
}
