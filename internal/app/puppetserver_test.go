package app

import (
	"io/fs"
	"os"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti/deploy"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/machine"
	puppetmodule "github.com/tutti-project/tutti/puppet"
)

// The complete module is installed in place of an older one. Everybody may read the
// installed module, even with a strict umask.
func TestCopyModule(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "modules", "tutti")
	old := filepath.Join(dir, "lib", "old.rb")
	if err := os.MkdirAll(filepath.Dir(old), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(old, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	fresh := filepath.Join(t.TempDir(), "modules")
	before := syscall.Umask(0o077)
	defer syscall.Umask(before)
	for _, dir := range []string{dir, dir, filepath.Join(fresh, "tutti")} {
		if err := copyModule(dir); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(old); err == nil {
		t.Error("a file of the older one is there")
	}
	got := map[string]os.FileMode{}
	for _, name := range []string{".", "lib/puppet_x/tutti/compiles.rb", "lib/puppet/functions/tutti/value.rb", "metadata.json"} {
		info, err := os.Stat(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		got[name] = info.Mode().Perm()
	}
	info, err := os.Stat(fresh)
	if err != nil {
		t.Fatal(err)
	}
	got["modules"] = info.Mode().Perm()
	want := map[string]os.FileMode{"modules": 0o755, ".": 0o755, "lib/puppet_x/tutti/compiles.rb": 0o644, "lib/puppet/functions/tutti/value.rb": 0o644, "metadata.json": 0o644}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// The module connects to the agent's socket. None of our systemd units removes the socket's directory when
// the unit stops.
func TestTheCompileSocketsDirectoryStays(t *testing.T) {
	raw, err := fs.ReadFile(puppetmodule.FS(), "lib/puppet_x/tutti/compiles.rb")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(raw), "'"+compileSocketPath+"'") {
		t.Errorf("the module's default is not %s", compileSocketPath)
	}
	units, err := fs.Glob(deploy.Units, "*.service")
	if err != nil || len(units) < 2 {
		t.Fatalf("units %q, %v", units, err)
	}
	for _, unit := range units {
		raw, err := deploy.Units.ReadFile(unit)
		if err != nil {
			t.Fatal(err)
		}
		for line := range strings.Lines(string(raw)) {
			dir, is := strings.CutPrefix(strings.TrimSpace(line), "RuntimeDirectory=")
			if is && strings.HasPrefix(compileSocketPath, "/run/"+dir+"/") {
				t.Errorf("%s removes /run/%s, in which is %s", unit, dir, compileSocketPath)
			}
		}
	}
}

// An agent opens a compile socket if the host has a valid machine.CompileFile. If the file is invalid, the
// agent opens no socket.
func TestCompileSocket(t *testing.T) {
	root, err := user.Lookup("root")
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason, content string
		want            *agent.CompileSocket
		says            string
	}{
		{"no Puppet Server", "", nil, ""},
		{"one", `{"socket":"/run/x","user":"` + root.Username + `"}`, &agent.CompileSocket{Path: "/run/x"}, ""},
		{"not a file of ours", `{`, nil, "write the file again with: tutti puppet-server install"},
		{"nobody", `{"socket":"/run/x","user":"nobody at all"}`, nil, "the user of the Puppet Server"},
	} {
		dir := t.TempDir()
		if tc.content != "" {
			if err := os.WriteFile(filepath.Join(dir, machine.CompileFile), []byte(tc.content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		got, err := compileSocket(dir)
		if tc.says != "" {
			wantSays(t, tc.reason, err, tc.says)
			if got != nil {
				t.Errorf("%s: %+v", tc.reason, got)
			}
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", tc.reason, err)
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

func wantSays(t *testing.T, reason string, err error, says string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), says) {
		t.Errorf("%s: %v, want %q", reason, err, says)
	}
}
