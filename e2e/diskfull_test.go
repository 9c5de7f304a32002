//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
)

const (
	serverDir = "/var/lib/tutti/server"
	agentDir  = "/var/lib/tutti/agent"
)

// A `disk` is a small file system for the directory of a unit on a host. It exists only during a
// test.
type disk struct {
	t         *testing.T
	host      *lab.Host
	unit, dir string
	process   string // the pid of the unit's main process, which nobody may restart
}

// newDisk moves the directory of a unit to a file system with the given free room. At the end of
// the test the directory is moved back. If the host's mounts disappear, the file system also
// disappears.
func newDisk(t *testing.T, h *lab.Host, unit, dir string, room int) *disk {
	t.Helper()
	const away = "/run/tutti-disk"
	later(t, h, fmt.Sprintf(`mountpoint -q %[1]s || exit 0
systemctl stop %[2]s
rm -f %[1]s/full
mkdir -p %[3]s
mount --bind %[1]s %[3]s
umount %[1]s
rm -rf %[1]s/*
cp -a %[3]s/. %[1]s/
umount %[3]s
systemctl start %[2]s`, dir, unit, away))
	sh(t, h, fmt.Sprintf(`systemctl stop %[2]s
mkdir -p %[3]s
mount -t tmpfs -o size=$(($(du -sk %[1]s | cut -f1) + %[4]d))k none %[3]s
cp -a %[1]s/. %[3]s/
mount --bind %[3]s %[1]s
umount %[3]s
systemctl start %[2]s`, dir, unit, away, room>>10))
	d := &disk{t: t, host: h, unit: unit, dir: dir}
	d.process = d.running()
	eventually(t, "the fleet is together again", func() bool {
		nodes, err := fleet.Client.ListNodes(t.Context())
		connected := 0
		for _, n := range nodes {
			if n.Connected {
				connected++
			}
		}
		return err == nil && connected == len(fleet.Nodes)
	})
	return d
}

func (d *disk) running() string {
	d.t.Helper()
	return sh(d.t, d.host, "systemctl show -p MainPID -p NRestarts "+d.unit)
}

// The method `fill` fills the disk with other data until only the given number of KiB is free.
func (d *disk) fill(leave int) {
	d.t.Helper()
	sh(d.t, d.host, fmt.Sprintf(`dd if=/dev/zero of=%[1]s/full bs=64k 2>/dev/null || true; truncate -s -%[2]dK %[1]s/full`, d.dir, leave))
}

// The method `free` removes the data that the method `fill` has written, and does nothing else.
func (d *disk) free() {
	d.t.Helper()
	sh(d.t, d.host, "rm "+d.dir+"/full")
}

// The method `untouched` fails if the unit's main process has changed since the beginning.
func (d *disk) untouched() {
	d.t.Helper()
	if now := d.running(); now != d.process {
		d.t.Errorf("%s did not go on by itself: %s, before: %s", d.unit, now, d.process)
	}
}

const diskFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  one: {nodes: [node-01]}
  two: {nodes: [node-02]}
plans:
  both:
    steps:
      - run: one
      - run: two
  one: {steps: [{run: one}]}
`

// TestServerDiskFull fills the server's disk in the middle of a job while operators write. A
// refusal must name the full disk, and no acknowledged value may be missing afterwards. When there
// is room again, the job must end successfully without help.
func TestServerDiskFull(t *testing.T) {
	const says = "the server's disk is full: "
	for _, tc := range []struct {
		name, reason string
		leave        int
	}{
		{"nearly", "what has begun ends, and no run begins", 2 << 10},
		{"to the last byte", "nothing can be kept, nothing is acknowledged", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			push(t, diskFleet, "node 'node-01' {\n"+waitExec+"}\nnode default { notify { 'then': } }\n")
			d := newDisk(t, fleet.Server, "tutti-server", serverDir, 96<<20)
			barrier := newBarrier(t, host(t, "node-01"))
			j := start(t, fleet, "both", tutti.ModeApply)
			barrier.wait()
			j.until(func(api.Watched) bool { return j.Job != nil && j.Step("run-one").Nodes[0].Last() != nil })
			first := j.last("run-one", "node-01").Run
			acknowledged := map[string]bool{}
			write := func(n int) error {
				key := fmt.Sprintf("shared/disk/%s/%d", strings.ReplaceAll(tc.name, " ", "-"), n)
				err := fleet.Client.SetValue(t.Context(), key, json.RawMessage(`"`+strings.Repeat("x", 4000)+`"`))
				if err == nil {
					acknowledged[key] = true
				}
				return err
			}
			filled, opened := false, false
			j.until(func(w api.Watched) bool { // the job is watched to see its messages
				if !filled {
					filled = true
					d.fill(tc.leave)
					var err error
					eventually(t, "a value is refused", func() bool { err = write(len(acknowledged)); return err != nil })
					if tutti.CodeOf(err) != tutti.CodeUnavailable || !strings.Contains(err.Error(), says) || !strings.Contains(err.Error(), " free in "+serverDir) {
						t.Errorf("%s: a value is refused with: %v", tc.reason, err)
					}
					barrier.open()
					opened = true
				}
				return w.Live != nil && strings.Contains(w.Live.Message, says) || tc.leave == 0 && opened
			})
			eventually(t, "the first node's run has ended", func() bool {
				return sh(t, host(t, "node-01"), "ls "+agentDir+"/runs/"+string(first)+"/result.json 2>/dev/null || true") != ""
			})
			if tc.leave == 0 {
				eventually(t, "nothing is served", func() bool {
					_, err := fleet.Client.ListNodes(t.Context())
					return err != nil && strings.Contains(err.Error(), says+"0 KiB free in "+serverDir)
				})
			}
			if got := sh(t, host(t, "node-02"), "grep -l "+string(j.id)+" "+agentDir+"/runs/*/run.json 2>/dev/null || true"); got != "" {
				t.Errorf("%s: a run began on a full disk: %s", tc.reason, got)
			}
			d.free()
			j.end()
			if s := j.Summary(j.EndedAt); s.Outcome != tutti.VerdictSucceeded || s.Runs != 2 || s.Failed != 0 {
				t.Errorf("%s: summary %+v (%s), want 2 runs, none failed", tc.reason, s, j.Message)
			}
			checkOneStart(t, host(t, "node-01"), first)
			checkOneStart(t, host(t, "node-02"), j.last("run-two", "node-02").Run)
			eventually(t, "a value is taken again", func() bool { return write(len(acknowledged)) == nil })
			d.keeps(acknowledged)
			d.untouched()
			sh(t, d.host, "systemctl restart tutti-server") // the restart checks that the disk has everything
			eventually(t, "the server is back", func() bool { _, err := fleet.Client.ListNodes(t.Context()); return err == nil })
			d.keeps(acknowledged)
		})
	}
}

// The method `keeps` checks that no acknowledged value is missing.
func (d *disk) keeps(acknowledged map[string]bool) {
	d.t.Helper()
	values, err := fleet.Client.ListValues(d.t.Context(), "shared/disk/")
	if err != nil {
		d.t.Fatal(err)
	}
	has := map[string]bool{}
	for _, v := range values {
		has[v.Key] = true
	}
	for key := range acknowledged {
		if !has[key] {
			d.t.Errorf("%s was acknowledged and is gone", key)
		}
	}
}

// TestNodeDiskFull fills a node's disk in the middle of a run, and before a run.
func TestNodeDiskFull(t *testing.T) {
	push(t, diskFleet, waitExec)
	h := host(t, "node-01")
	d := newDisk(t, h, "tutti-agent", agentDir, 96<<20)
	during := func(leave int) *job {
		barrier := newBarrier(t, h)
		j := start(t, fleet, "one", tutti.ModeApply)
		barrier.wait()
		d.fill(leave)
		barrier.open()
		return j.end()
	}
	// A run that has begun can end, because the agent keeps a reserve on the disk.
	j := during(2 << 10)
	j.expect(j.last("run-one", "node-01"), tutti.Changed, "", "")

	// The next run does not begin, and the node reports the reason.
	const says = "this node's disk is full: "
	j = execute(t, "one", tutti.ModeApply)
	r := j.last("run-one", "node-01")
	j.expect(r, tutti.Failed, tutti.BecauseMachinery, says)
	j.expect(r, tutti.Failed, tutti.BecauseMachinery, " free in "+agentDir)
	if got := sh(t, h, "ls "+agentDir+"/runs/"+string(r.Run)+"/phase.jsonl 2>/dev/null || true"); got != "" {
		t.Error("Puppet was started on a full disk")
	}
	eventually(t, "the node says what it cannot do", func() bool { return strings.Contains(trouble(t, "node-01"), says) })
	healed := func() {
		d.free()
		eventually(t, "the agent sees that there is room", func() bool { return trouble(t, "node-01") == "" })
	}
	healed()

	// If not a byte is left for the run's files, the run is not good, but it ends.
	j = during(0)
	j.expect(j.last("run-one", "node-01"), tutti.Failed, tutti.BecauseMachinery, "No space left on device")
	healed()
	j = execute(t, "one", tutti.ModeApply)
	j.expect(j.last("run-one", "node-01"), tutti.Changed, "", "")
	if j.Verdict != tutti.VerdictSucceeded {
		t.Errorf("with room again: %s, %s", j.Verdict, j.Message)
	}
	d.untouched()
}

// The function `trouble` returns the node's report about work that the node cannot do.
func trouble(t *testing.T, node tutti.NodeName) string {
	t.Helper()
	nodes, err := fleet.Client.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(nodes, func(n api.NodeView) bool { return n.Node == node })
	if i < 0 {
		t.Fatalf("the server does not have %s", node)
	}
	return nodes[i].Trouble
}
