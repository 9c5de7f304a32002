//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/release"
	"github.com/tutti-project/tutti/internal/stage"
)

const (
	oldVersion = "1.0.0"
	newVersion = "2.0.0"
)

// TestUpgrade applies a catalog that upgrades the package of the agent itself. The run must
// continue, and the new agent must follow it and report its outcome.
func TestUpgrade(t *testing.T) {
	debs := t.TempDir()
	buildDeb(t, oldVersion, debs)
	upgrade(t, debs, oldVersion)
}

// TestUpgradeFromRelease is like TestUpgrade, but begins with the package of the last release, as this
// release has built its package.
func TestUpgradeFromRelease(t *testing.T) {
	all, err := release.Read("..")
	if err != nil {
		t.Fatal(err)
	}
	debs := t.TempDir()
	if err := all[0].BuildDeb(t.Context(), "..", t.TempDir(), debs); err != nil {
		t.Fatal(err)
	}
	upgrade(t, debs, all[0].Version)
}

// buildDeb builds the Debian package of this tree with a version.
func buildDeb(t *testing.T, version, dir string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "run", "./internal/packages", "-version", version, "-only", "deb", "-out", dir)
	cmd.Dir = ".."
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("package of version %s: %v\n%s", version, err, out)
	}
}

// The function `upgrade` installs the package of the old version on a node, and upgrades it in a run.
func upgrade(t *testing.T, debs, oldVersion string) {
	t.Helper()
	buildDeb(t, newVersion, debs)
	node := host(t, "node-03")
	for _, v := range []string{oldVersion, newVersion} {
		copyIn(t, node, debs, v)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		rejoin(ctx, t, fleet, node, "dpkg --purge tutti", "/usr/local/bin/tutti")
	})
	rejoin(t.Context(), t, fleet, node, "rm -f /etc/systemd/system/tutti-agent.service; dpkg -i /root/tutti_"+oldVersion+".deb", "/usr/bin/tutti")
	if got := agentVersion(t, oldVersion); got != oldVersion {
		t.Fatalf("the node runs version %q, want %s", got, oldVersion)
	}
	push(t, attackFleet, `
		package { 'tutti': ensure => latest, provider => dpkg, source => '/root/tutti_`+newVersion+`.deb' }
		-> `+heldSite)
	h := hold(t, "node-03", "node-03")
	if got := agentVersion(t, newVersion); got != newVersion {
		t.Errorf("in the middle of the run the node has version %q, want %s", got, newVersion)
	}
	h.letGo()
	r := h.ended()
	h.expect(r, tutti.Changed, "", "")
	checkAfter(t, h, tutti.Changed, "")
	if r.Result.Counts.Changed != 3 {
		t.Errorf("%d resources changed, want package, exec and file", r.Result.Counts.Changed)
	}
}

func copyIn(t *testing.T, h *lab.Host, dir, version string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "tutti_"+version+"_*.deb"))
	if err != nil || len(found) != 1 {
		t.Fatalf("packages of version %s in %s: %v %v", version, dir, found, err)
	}
	if err := h.CopyIn(t.Context(), found[0], "/root/tutti_"+version+".deb"); err != nil {
		t.Fatal(err)
	}
}

// rejoin makes the host a node again, with another binary. The script change replaces the old
// binary.
func rejoin(ctx context.Context, t *testing.T, f *stage.LabFleet, h *lab.Host, change, binary string) {
	t.Helper()
	fail := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	_, err := stage.Output(ctx, h, nil, "sh", "-euc", "systemctl disable --now --quiet tutti-agent; "+change+"; rm -rf /var/lib/tutti/agent")
	fail(err)
	name := tutti.NodeName(h.Name)
	fail(f.Client.ReplaceNode(ctx, name))
	token, err := f.Client.CreateToken(ctx, api.CreateToken{Name: h.Name, TTL: time.Minute})
	fail(err)
	_, err = stage.Output(ctx, h, []byte(token.Text), binary, "join")
	fail(err)
}

// agentVersion waits until the agent of node-03 is connected with the wanted version, and returns
// this version.
func agentVersion(t *testing.T, want string) string {
	t.Helper()
	var node struct {
		Version   string `json:"version"`
		Connected bool   `json:"connected"`
	}
	eventually(t, "node-03 says version "+want, func() bool {
		out, code := tuttiCLI(t, fleet, "node", "show", "node-03", "--json")
		if code != 0 || json.Unmarshal([]byte(out), &node) != nil {
			t.Fatalf("tutti node show: exit code %d: %s", code, out)
		}
		return node.Version == want && node.Connected
	})
	return node.Version
}
