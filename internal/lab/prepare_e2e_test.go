//go:build e2e

package lab

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"
)

// This script writes the host's name and identity into a file. The script
// enables a unit that runs at each boot, and starts a unit that records when it
// is stopped.
const preparesWell = `
hostname -f > /etc/prepared
cat /etc/machine-id >> /etc/prepared
echo started > /var/log/prepared.log
cat > /etc/systemd/system/each-boot.service <<'UNIT'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/touch /run/booted
[Install]
WantedBy=multi-user.target
UNIT
systemctl --quiet enable each-boot
systemd-run --quiet --unit once -p Type=oneshot -p RemainAfterExit=yes -p ExecStop='/bin/sh -c "echo stopped > /var/lib/once"' true
`

const preparesNever = "echo 'the disk is there'; echo 'no such table' >&2; exit 3"

const preparesForEver = "touch /var/lib/begun; sleep 86396"

// The function `preparing` returns a machine whose cache has only the plain base.
func preparing(t *testing.T) Machine {
	t.Helper()
	m := testMachine(t)
	plain, err := m.Base(t.Context(), Definition{})
	if err != nil {
		t.Fatal(err)
	}
	m.Cache = t.TempDir()
	m.Program = program(m)
	if err := os.Symlink(plain, filepath.Join(m.Cache, filepath.Base(plain))); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestPreparedBase(t *testing.T) {
	m := preparing(t)
	before := traces(t, m)
	var logs [2]bytes.Buffer
	group, ctx := errgroup.WithContext(t.Context())
	for i := range logs {
		builder := m
		builder.Log = &logs[i]
		group.Go(func() error { _, err := builder.Base(ctx, prepared(preparesWell)); return err })
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	waits := "holds " + filepath.Join(m.Cache, prepared(preparesWell).dirName()+".lock")
	if said := logs[0].String() + logs[1].String(); strings.Count(said, "building base") != 1 || strings.Count(said, waits) != 1 {
		t.Errorf("two builders of one base, of which one is to wait:\n%s", said)
	}
	wantTraces(t, m, before)
	wantOwnFilesReset(t, m)
	var log bytes.Buffer
	m.Log = &log
	r := up(t, m, Spec{Name: "one", Hosts: []HostSpec{{Name: "a-01", Prepare: preparesWell}, {Name: "a-02"}}})
	if strings.Contains(log.String(), "building") {
		t.Errorf("a base was built again:\n%s", log.String())
	}
	one := r.Hosts[0]
	tests := map[string]struct{ reason, command, want string }{
		"file":     {"what the script wrote is there, and the host had its name", "head -n 1 /etc/prepared", "a-01.one.test"},
		"identity": {"it was another machine", `test "$(cat /etc/machine-id)" != "$(tail -n 1 /etc/prepared)" && echo other`, "other"},
		"unit":     {"what it enabled starts", "systemctl is-active each-boot && ls /run/booted", "active\n/run/booted"},
		"stopped":  {"its services were stopped", "cat /var/lib/once", "stopped"},
		"log":      {"its logs are empty", "stat -c %s /var/log/prepared.log", "0"},
		"address":  {"it knows its new address", "getent hosts a-01 | cut -d' ' -f1", one.Address.String()},
		"name":     {"it has its name", "hostname -f", "a-01.one.test"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, shell(t, one, tt.command)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tt.reason, diff)
			}
		})
	}
	if got := shell(t, r.Hosts[1], "ls /etc/prepared 2>/dev/null || echo no"); got != "no" {
		t.Errorf("another host has it: %s", got)
	}
}

// wantOwnFilesReset checks the files that each host writes for itself. In the prepared
// base, these files must be the same as in the parent base.
func wantOwnFilesReset(t *testing.T, m Machine) {
	t.Helper()
	dir := func(d Definition) string { return filepath.Join(m.Cache, d.dirName()) }
	host := state{Hosts: []hostState{{Name: "a-01"}}}
	own, err := m.hostFiles(t.Context(), host, 0, Releases[0])
	if err != nil {
		t.Fatal(err)
	}
	for name := range own {
		want, _ := os.ReadFile(filepath.Join(dir(Definition{}), name)) // a missing file counts as empty
		got, _ := os.ReadFile(filepath.Join(dir(prepared(preparesWell)), name))
		if diff := cmp.Diff(string(want), string(got)); diff != "" {
			t.Errorf("%s of the base: -parent's +got\n%s", name, diff)
		}
	}
}

func TestFailedPreparation(t *testing.T) {
	m := preparing(t)
	before := traces(t, m)
	_, err := m.Base(t.Context(), prepared(preparesNever))
	if err == nil {
		t.Fatal("a script that fails made a base")
	}
	for _, want := range []string{"a-01", "exit status 3", "the disk is there\nno such table", ".log"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	wantNoBase(t, m, prepared(preparesNever))
	wantTraces(t, m, before)
}

func TestKilledPreparationLeavesNothing(t *testing.T) {
	m := preparing(t)
	before := traces(t, m)
	cmd := actor(m, "prepare")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	d := prepared(preparesForEver)
	host := state{dir: m.labDir(building{Definition: d}.lab().Name)}.hostDir(0)
	seen := eventually(time.Minute, func() bool { return exists(filepath.Join(host, "upper/var/lib/begun")) })
	if cmp.Equal(before, traces(t, m)) {
		t.Error("a host that is prepared leaves no trace: this test sees nothing")
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	if !seen {
		t.Fatal("the script never began")
	}
	lock, err := m.lock(t.Context(), filepath.Join(m.Cache, d.dirName()+".lock"))
	if err != nil {
		t.Fatalf("the lock of a killed build: %v", err)
	}
	lock.Close()
	if exists(m.labDir(building{Definition: d}.lab().Name)) {
		t.Error("the next builder finds the lab of the one that was killed")
	}
	wantNoBase(t, m, d)
	wantTraces(t, m, before)
}

func wantNoBase(t *testing.T, m Machine, d Definition) {
	t.Helper()
	if dir := filepath.Join(m.Cache, d.dirName()); exists(dir) || exists(dir+".part") {
		t.Errorf("a base, or a part of it, is at %s", dir)
	}
}
