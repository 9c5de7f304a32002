//go:build e2e

package e2e_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

const leaver = "node-03"

// leavesFleet runs one node. This run leaves files that `tutti leave` must remove.
const leavesFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  leaver: {nodes: [node-03]}
plans:
  leaver:
    steps:
      - run: leaver
`

// TestLeave checks that a machine which leaves has the same files as before it joined. The test
// joins and leaves twice, to find every file that joining, a run or the agent has left.
func TestLeave(t *testing.T) {
	h := host(t, leaver)
	push(t, leavesFleet, "notify { 'hello': }\n")
	execute(t, "leaver", tutti.ModeApply)
	t.Cleanup(func() {
		if t.Failed() { // the other tests need this node
			_, _ = stage.Output(context.WithoutCancel(t.Context()), h, nil, hostTutti, "leave", "--yes", "--offline")
			joinAgain(context.WithoutCancel(t.Context()), t, h)
		}
	})
	leave(t, h)
	before := tree(t, h)
	for _, path := range before {
		if strings.Contains(path, "tutti") && path != hostTutti {
			t.Errorf("%s is left", path)
		}
	}
	joinAgain(t.Context(), t, h)
	push(t, leavesFleet, "notify { 'hello again': }\n")
	execute(t, "leaver", tutti.ModeApply)
	leave(t, h)
	if diff := cmp.Diff(before, tree(t, h)); diff != "" {
		t.Errorf("files -after the first time +after the second\n%s", diff)
	}
	joinAgain(t.Context(), t, h)
}

// TestNothingIsLeft installs the package, lets the machine join an observed fleet, and leaves. After the purge of the package
// all files must be as they were, with the same content, mode, owner and time. Only logs, and the state of dpkg and systemd,
// may differ.
func TestNothingIsLeft(t *testing.T) {
	debs := t.TempDir()
	buildDeb(t, newVersion, debs)
	h := host(t, leaver)
	copyIn(t, h, debs, newVersion)
	leave(t, h)
	sh(t, h, "mv "+hostTutti+" /root/kept; rm -rf /var/lib/tutti /etc/tutti")
	defer func() {
		sh(t, h, "dpkg --purge tutti 2>/dev/null; rm -f /root/tutti_*.deb; mv /root/kept "+hostTutti)
		joinAgain(t.Context(), t, h)
		push(t, oneNode, "notify { 'nothing': }\n") // the other tests need a fleet that runs Puppet
	}()
	files := func() string {
		t.Helper()
		return sh(t, h, `find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /dev -o -path /tmp -o -path /var/tmp -o -path /var/log -o -path /var/lib/systemd -o -path /var/lib/dpkg \) -prune \
			-o \( -type d -printf '%p %m %u %g\n' \) -o \( -not -type d -printf '%p %m %u %g %s %T@ %l\n' \) | sort; find /etc /root /opt /usr/local /var/lib -xdev -path /var/lib/systemd -prune -o -path /var/lib/dpkg -prune -o -type f -exec sha256sum {} + | sort
			systemctl list-unit-files --no-legend | awk '{print $1, $2}'; getent passwd; getent group; crontab -l 2>&1 || true`)
	}
	push(t, observedNodes, "notify { 'never': }\n")
	before := files()
	sh(t, h, "dpkg -i /root/tutti_"+newVersion+".deb")
	token, err := fleet.Client.CreateToken(t.Context(), api.CreateToken{Name: leaver, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stage.Output(t.Context(), h, []byte(token.Text), "/usr/bin/tutti", "join"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server to have judged the node", func() bool {
		nodes, err := fleet.Client.ListNodes(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(nodes, func(n api.NodeView) bool { return n.Node == leaver && n.Observed && n.Connected && n.Stands != "" })
	})
	if files() == before {
		t.Error("the comparison does not see an installed agent")
	}
	sh(t, h, "/usr/bin/tutti leave --yes && dpkg --purge tutti")
	if after := files(); after != before {
		t.Errorf("something is left, or was changed:\n%s", changedLines(before, after))
	}
}

const hostTutti = "/usr/local/bin/tutti"

func leave(t *testing.T, h *lab.Host) {
	t.Helper()
	// A job ends when the server has the last result. The agent learns a moment later that the
	// server has the result.
	eventually(t, "the agent has been told that all results arrived", func() bool {
		return sh(t, h, `cd `+agentDir+`/runs; for r in *; do test ! -e $r/result.json -o -e $r/sent || echo $r; done`) == ""
	})
	sh(t, h, hostTutti+" leave --yes")
	if got := sh(t, h, `systemctl show -p LoadState -p ActiveState tutti-agent; systemctl is-enabled tutti-agent || true; pgrep -ax tutti || true`); !strings.Contains(got, "LoadState=not-found") || strings.Contains(got, "agent") {
		t.Errorf("the unit and its processes after leaving: %s", got)
	}
	nodes, err := fleet.Client.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range nodes {
		if string(n.Node) == h.Name {
			t.Errorf("the server still has %+v", n)
		}
	}
}

func joinAgain(ctx context.Context, t *testing.T, h *lab.Host) {
	t.Helper()
	if err := fleet.Join(ctx, h); err != nil {
		t.Fatal(err)
	}
}

// The function `tree` lists the files of a host. The function leaves out files that the system
// itself changes, such as logs and the state of systemd and Puppet.
func tree(t *testing.T, h *lab.Host) []string {
	t.Helper()
	out := sh(t, h, `find / -xdev \( -path /var/log -o -path /var/lib/puppet -o -path /var/cache/puppet -o -path /tmp -o -path /var/tmp -o -path /var/lib/systemd \) -prune -o -print | sort; systemctl list-unit-files --no-legend | awk '{print $1, $2}'; getent passwd`)
	return strings.Split(out, "\n")
}

// TestDoctor checks that the doctor finds each problem of a node. After a person has followed the
// doctor's advice, the doctor must find no problem.
func TestDoctor(t *testing.T) {
	h := host(t, "node-02")
	doctor := func() (string, error) {
		out, err := stage.Output(t.Context(), h, nil, hostTutti, "doctor")
		return string(out), err
	}
	if out, err := doctor(); err != nil {
		t.Fatalf("a sound node: %v\n%s", err, out)
	}
	if out, err := stage.Output(t.Context(), fleet.Server, nil, hostTutti, "doctor"); err != nil {
		t.Errorf("a sound server: %v\n%s", err, out)
	}
	lock := sh(t, h, "puppet config print agent_catalog_run_lockfile 2>/dev/null | tail -n 1")
	t.Cleanup(func() {
		if t.Failed() {
			_, _ = stage.Output(context.WithoutCancel(t.Context()), h, nil, "sh", "-c", "rm -f "+lock+"; chmod -R go= /var/lib/tutti/agent/identity; systemctl start tutti-agent")
		}
	})
	sh(t, h, "systemctl stop tutti-agent; mkdir -p $(dirname "+lock+"); echo 99999999 > "+lock+"; chmod 644 /var/lib/tutti/agent/identity/*")
	out, err := doctor()
	if err == nil {
		t.Errorf("a broken node is well: %s", out)
	}
	for _, want := range []string{"systemctl start tutti-agent", "rm " + lock, "chmod go= /var/lib/tutti/agent/identity/"} {
		if !strings.Contains(out, want) {
			t.Errorf("%q is not among what mends it:\n%s", want, out)
		}
	}
	sh(t, h, "rm "+lock+"; chmod go= /var/lib/tutti/agent/identity/*; systemctl start tutti-agent")
	eventually(t, "the node is well again", func() bool { _, err := doctor(); return err == nil })
}
