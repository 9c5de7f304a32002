//go:build e2e

package lab

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHosts(t *testing.T) {
	m := testMachine(t)
	shared := t.TempDir()
	write(t, filepath.Join(shared, "greeting"), "hello\n", 0o644)
	spec := Spec{
		Name:  "one",
		Binds: []Bind{{Source: shared, Destination: "/srv/shared", ReadOnly: true}},
		Hosts: []HostSpec{{Name: "a-01"}, {Name: "a-02"}, {Name: "a-03"}, {Name: "www.example.net", Aliases: []string{"old"}, Release: "bookworm"}},
	}
	running := up(t, m, spec)
	t.Run("commands", func(t *testing.T) { testCommands(t, running) })
	t.Run("exit code and input", func(t *testing.T) { testExit(t, running) })
	t.Run("copy", func(t *testing.T) { testCopy(t, running) })
	t.Run("packages at once", func(t *testing.T) { testPackages(t, running) })
	t.Run("outer machine", func(t *testing.T) { testOuter(t, running) })
	t.Run("apart", func(t *testing.T) { testApart(t, running) })
	t.Run("same name", func(t *testing.T) {
		if _, err := m.Up(t.Context(), spec); err == nil || !strings.Contains(err.Error(), "tutti lab down one") {
			t.Errorf("a second lab of the name: got %v, want how to take the first down", err)
		}
	})
}

func testCommands(t *testing.T, r *Running) {
	tests := map[string]struct{ reason, host, command, want string }{
		"state":      {"systemd has booted without a failed unit", "a-01", "systemctl is-system-running", "running"},
		"name":       {"a host knows its own name", "a-02", "hostname", "a-02"},
		"full name":  {"and its full name", "a-02", "hostname -f", "a-02.one.test"},
		"own domain": {"a full name in the lab file has its own domain", "www.example.net", "hostname -f", "www.example.net"},
		"other":      {"hosts resolve each other by name", "a-01", "getent hosts a-03 | cut -d' ' -f1", r.Hosts[2].Address.String()},
		"other full": {"and by full name", "a-01", "getent hosts a-03.one.test | cut -d' ' -f1", r.Hosts[2].Address.String()},
		"alias":      {"and by alias", "a-01", "getent hosts old | cut -d' ' -f1", r.Hosts[3].Address.String()},
		"reach":      {"hosts reach each other", "a-01", "ping -q -c 1 -W 2 a-02 > /dev/null && echo yes", "yes"},
		"network":    {"a host's services may change its network", "a-02", "systemd-run -q --pipe ip address add 192.0.2.1/32 dev lo && ip -o address show dev lo | grep -c 192.0.2.1", "1"},
		"release":    {"a host may have a release of its own", "www.example.net", ". /etc/os-release; echo $VERSION_CODENAME", "bookworm"},
		"default":    {"the default release", "a-01", ". /etc/os-release; echo $VERSION_CODENAME", "trixie"},
		"bind":       {"a directory of the outer machine", "a-01", "cat /srv/shared/greeting", "hello"},
		"read-only":  {"which hosts may not write to", "a-01", "touch /srv/shared/mine 2> /dev/null || echo no", "no"},
		"clean":      {"nothing of the outer machine is in the environment", "a-01", "env | cut -d= -f1 | grep -i -c -e ^LAB -e ^GO || true", "0"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			h, err := r.Host(tt.host)
			if err != nil {
				t.Fatal(err)
			}
			out, err := h.Command(t.Context(), "sh", "-c", tt.command).CombinedOutput()
			if diff := cmp.Diff(tt.want, strings.TrimSpace(string(out))); diff != "" || err != nil {
				t.Errorf("%s: %v -want +got\n%s", tt.reason, err, diff)
			}
		})
	}
}

// testApart checks that hosts share no identities or resources with each other
// or with the outer machine.
func testApart(t *testing.T, r *Running) {
	ids := map[string]bool{}
	for _, h := range r.Hosts {
		id, err := h.Command(t.Context(), "cat", "/etc/machine-id").Output()
		if err != nil || ids[string(id)] {
			t.Errorf("host %s: machine id %q, %v", h.Name, id, err)
		}
		ids[string(id)] = true
		pids, err := members(h.cgroup)
		if err != nil || len(pids) == 0 {
			t.Errorf("host %s: processes %v, %v", h.Name, pids, err)
		}
		for _, pid := range pids {
			if group, err := syscall.Getpgid(pid); err == nil && group == syscall.Getpgrp() {
				t.Errorf("host %s: process %d would get this terminal's signals", h.Name, pid)
			}
		}
	}
}

func testExit(t *testing.T, r *Running) {
	cmd := r.Hosts[0].Command(t.Context(), "sh", "-c", "cat; exit 7")
	cmd.Stdin = strings.NewReader("passed through")
	out, err := cmd.Output()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 7 || string(out) != "passed through" {
		t.Errorf("got %q and %v, want the input and exit code 7", out, err)
	}
}

func testCopy(t *testing.T, r *Running) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "sub", "tool"), "#!/bin/sh\necho it runs\n", 0o755)
	h := r.Hosts[0]
	if err := h.CopyIn(t.Context(), filepath.Join(dir, "sub", "tool"), "/opt/new/tool"); err != nil {
		t.Fatal(err)
	}
	// On the host, /var/run is a link to an absolute path. The link must not
	// lead to a path outside of the host.
	if err := h.CopyIn(t.Context(), dir, "/var/run/copied"); err != nil {
		t.Fatal(err)
	}
	out, err := h.Command(t.Context(), "sh", "-c", "/opt/new/tool && /run/copied/sub/tool").CombinedOutput()
	if string(out) != "it runs\nit runs\n" || err != nil {
		t.Errorf("copied tools: got %q, %v", out, err)
	}
	if exists("/run/copied") {
		t.Error("the copy is on the outer machine")
	}
	if err := h.CopyIn(t.Context(), dir, "/proc/nowhere"); err == nil {
		t.Error("a copy to where nothing can be made: no error")
	}
}

func testPackages(t *testing.T, r *Running) {
	var wait sync.WaitGroup
	for _, h := range r.Hosts {
		wait.Go(func() {
			out, err := h.Command(t.Context(), "sh", "-c",
				"apt-get -q update && apt-get -q -y install --no-install-recommends tree && tree --version").CombinedOutput()
			if err != nil {
				t.Errorf("all hosts install a package at once: %s: %v\n%s", h.Name, err, out)
			}
		})
	}
	wait.Wait()
}

func testOuter(t *testing.T, r *Running) {
	url := serve(t, r.Outer.String(), http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "from outside")
	}))
	out, err := r.Hosts[1].Command(t.Context(), "curl", "-sS", strings.Replace(url, r.Outer.String(), serverName, 1)).CombinedOutput()
	if string(out) != "from outside" || err != nil {
		t.Errorf("a server on the outer machine, by name: got %q, %v", out, err)
	}
}

// The function `serve` runs an HTTP server at an address of this machine until the test ends.
func serve(t *testing.T, address string, handler http.Handler) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", net.JoinHostPort(address, "0"))
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewUnstartedServer(handler)
	_ = server.Listener.Close() // httptest has opened this listener at another address
	server.Listener = listener
	server.Start()
	t.Cleanup(server.Close)
	return server.URL
}

func TestTwoLabs(t *testing.T) {
	m := testMachine(t)
	one := up(t, m, twoHosts("one"))
	two := up(t, m, twoHosts("two"))
	if one.Subnet.Overlaps(two.Subnet) {
		t.Errorf("two labs in one network: %s, %s", one.Subnet, two.Subnet)
	}
	if _, err := m.Open(""); err == nil || !strings.Contains(err.Error(), "one, two") {
		t.Errorf("which of two labs: got %v, want their names", err)
	}
	if err := m.Down(t.Context(), "one"); err != nil {
		t.Fatal(err)
	}
	out, err := two.Hosts[0].Command(t.Context(), "sh", "-c", "ping -q -c 1 -W 2 a-02 && apt-get -q update").CombinedOutput()
	if err != nil {
		t.Errorf("taking one lab down disturbs the other: %v\n%s", err, out)
	}
	if err := one.Hosts[0].Command(t.Context(), "true").Run(); err == nil {
		t.Error("a command on a host that is gone: no error")
	}
}

func write(t *testing.T, path, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}
