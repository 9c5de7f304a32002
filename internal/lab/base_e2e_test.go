//go:build e2e

package lab

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestKilledBuildLeavesNoBase(t *testing.T) {
	m := testMachine(t)
	m.Cache = t.TempDir()
	before := traces(t, m)
	cmd := actor(m, "base")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	part := filepath.Join(m.Cache, Definition{}.dirName()+".part")
	seen := eventually(time.Minute, func() bool { return exists(filepath.Join(part, "etc")) })
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if !seen {
		t.Fatal("the build never began")
	}
	if exists(filepath.Join(m.Cache, Definition{}.dirName())) {
		t.Error("a killed build left a base")
	}
	wantTraces(t, m, before)
	lock, err := m.lock(t.Context(), filepath.Join(m.Cache, Definition{}.dirName()+".lock"))
	if err != nil {
		t.Fatalf("the lock of a killed build: %v", err)
	}
	lock.Close()
}

func TestChroot(t *testing.T) {
	m := testMachine(t)
	base, err := m.Base(t.Context(), Definition{})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write(t, filepath.Join(dir, "in"), "read", 0o644)
	before := traces(t, m)
	var out bytes.Buffer
	err = m.Run(t.Context(), Chroot{
		Base: base, Dir: "/srv/work", Stdout: &out, Stderr: &out,
		Binds: []Bind{
			{Source: dir, Destination: "/srv/work"},
			{Source: filepath.Join(dir, "in"), Destination: "/var/run/one/file", ReadOnly: true},
		},
		Args: []string{"sh", "-c", `cat in /run/one/file; echo written > out; touch /marker; echo x > /run/one/file || echo refused; sleep 86397 & exit 5`},
	})
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 5 {
		t.Errorf("got %v, want exit code 5", err)
	}
	if !strings.HasPrefix(out.String(), "readread") || !strings.HasSuffix(out.String(), "refused\n") {
		t.Errorf("output: %q", out.String())
	}
	if got := readText(t, filepath.Join(dir, "out")); got != "written\n" {
		t.Errorf("written to a bind: %q", got)
	}
	if exists(filepath.Join(base, "marker")) || exists("/run/one") {
		t.Error("what the command wrote is in the base or on the outer machine")
	}
	wantTraces(t, m, before)
}

func TestKilledChrootLeavesNothing(t *testing.T) {
	m := testMachine(t)
	if _, err := m.Base(t.Context(), Definition{}); err != nil {
		t.Fatal(err)
	}
	before := traces(t, m)
	cmd := actor(m, "chroot")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	seen := eventually(20*time.Second, func() bool {
		return strings.Contains(strings.Join(processes(t, m), "\n"), "sleep 86399")
	})
	if cmp.Equal(before, traces(t, m)) {
		t.Error("a command that runs leaves no trace: this test sees nothing")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if !seen {
		t.Fatal("the command never began")
	}
	wantTraces(t, m, before)
}
