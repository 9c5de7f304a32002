package puppet_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti/internal/puppet"
)

func TestAPersonsApplyIsNamedWithoutItsCode(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "apply"), []byte("echo ready; read line"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "/bin/sh") // which runs the script `apply`
	cmd.Args, cmd.Dir = []string{"/usr/bin/puppet", "apply", "-e", "user { 'ada': password => 'secret' }"}, dir
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
	got, err := puppet.Strangers()
	if err != nil || !slices.Contains(got, fmt.Sprintf("puppet apply, pid %d", cmd.Process.Pid)) || strings.Contains(strings.Join(got, " "), "secret") {
		t.Errorf("strangers %q, %v", got, err)
	}
}
