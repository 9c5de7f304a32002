package puppet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

	"github.com/tutti-project/tutti/internal/puppet"
)

// A `puppet apply` in a container on this machine changes the container.
func TestTheApplyOfAContainerIsItsOwn(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a PID namespace needs root")
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "apply"), []byte("echo ready; read line"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh")
	cmd.Args, cmd.Dir = []string{"/usr/bin/puppet", "apply", "site.pp"}, dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
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
	defer func() {
		in.Close()
		_ = cmd.Wait()
	}()
	if _, err := out.Read(make([]byte, 8)); err != nil {
		t.Fatal(err)
	}
	if got, err := puppet.Strangers(); err != nil || slices.Contains(got, fmt.Sprintf("puppet apply, pid %d", cmd.Process.Pid)) {
		t.Errorf("strangers %q, %v", got, err)
	}
}
