package puppet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/tutti-project/tutti/internal/puppet"
)

// apply runs something that looks like `puppet apply` until the test ends, and returns its pid.
func apply(t *testing.T, how *syscall.SysProcAttr, args ...string) int {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "apply"), []byte("echo ready; read line"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh") // the shell runs the script `apply`
	cmd.Args, cmd.Dir, cmd.SysProcAttr = append([]string{"/usr/bin/puppet", "apply"}, args...), dir, how
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	return cmd.Process.Pid
}

func TestAPersonsApplyIsNamedWithoutItsCode(t *testing.T) {
	pid := apply(t, nil, "-e", "user { 'ada': password => 'secret' }")
	got, err := puppet.Strangers()
	if err != nil || !slices.Contains(got, fmt.Sprintf("puppet apply, pid %d", pid)) || strings.Contains(strings.Join(got, " "), "secret") {
		t.Errorf("strangers %q, %v", got, err)
	}
}

// TestADamagedPidIsNobody: the agent may end a process that it adopts, so the process
// must certainly be ours. (If the file is damaged, the agent finds a running launcher by
// its arguments.)
func TestADamagedPidIsNobody(t *testing.T) {
	for _, content := range []string{`{}`, `{"pid":1}`, `{"pid":1,"start":1}`, `{"pid":` + strconv.Itoa(os.Getpid()) + `}`, `{"pid":-1,"start":7}`, "", "x"} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "pid"), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if process, err := puppet.Adopt(dir); process != nil || err != nil {
			t.Errorf("%q is process %+v, %v", content, process, err)
		}
	}
}
