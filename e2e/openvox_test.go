//go:build e2e

package e2e_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/stage"
)

// TestOpenVox runs a plan with OpenVox on a node. E2E_OPENVOX names the tree of its source (make openvox TREE=DIR). The
// node publishes a value, reads its groups and applies a file. The second time nothing changes.
func TestOpenVox(t *testing.T) {
	tree := os.Getenv("E2E_OPENVOX")
	if tree == "" {
		t.Skip("E2E_OPENVOX names no source of OpenVox: make openvox TREE=DIR")
	}
	raw, err := os.ReadFile(filepath.Join(tree, "lib/puppet/version.rb"))
	found := regexp.MustCompile(`PUPPETVERSION = '(.*)'`).FindSubmatch(raw)
	if err != nil || found == nil {
		t.Fatalf("%s has no version: %v", tree, err)
	}
	version := string(found[1])
	archive := filepath.Join(t.TempDir(), "openvox.tar")
	if out, err := exec.CommandContext(t.Context(), "tar", "-cf", archive, "-C", filepath.Join(tree, "lib"), ".").CombinedOutput(); err != nil {
		t.Fatalf("tar: %s, %v", out, err)
	}
	h := host(t, "node-01")
	if err := h.CopyIn(t.Context(), archive, "/root/openvox.tar"); err != nil {
		t.Fatal(err)
	}
	// Debian's Ruby looks here before it looks for its own Puppet. The agent starts Puppet with an environment of its own,
	// so RUBYLIB would have no effect.
	sh(t, h, "test ! -e /usr/local/lib/site_ruby/puppet; mkdir -p /usr/local/lib/site_ruby; tar -xf /root/openvox.tar -C /usr/local/lib/site_ruby; systemctl restart tutti-agent")
	t.Cleanup(func() {
		again := "rm -rf /usr/local/lib/site_ruby /root/openvox.tar /run/e2e-openvox; systemctl restart tutti-agent"
		if out, err := stage.Output(context.Background(), h, nil, "sh", "-euc", again); err != nil {
			t.Errorf("%s, %v", out, err)
		}
	})
	push(t, oneNode, `
		tutti_value { 'shared/w/openvox': value => $facts['clientversion'] }
		file { '/run/e2e-openvox': content => "${facts['clientversion']} ${join(tutti::groups(), ',')}" }
	`)
	for _, want := range []tutti.Outcome{tutti.Changed, tutti.Unchanged} {
		j := start(t, fleet, "one", tutti.ModeApply).end()
		for _, r := range runsOf(j.Job) {
			if r.Outcome() != want {
				t.Errorf("run of %s: %s %+v, want %s", r.Node, r.Outcome(), r.Result, want)
			}
		}
	}
	if got := sh(t, h, "cat /run/e2e-openvox"); got != version+" one" {
		t.Errorf("the node has applied %q, want %q", got, version+" one")
	}
}
