//go:build e2e

package e2e_test

import (
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const observedNodes = `
fleet: e2e
mode: observe
groups: {all: {nodes: [node-01, node-02, node-03]}}
plans: {one: {steps: [{run: all}]}}
`

// TestObserve checks that Tutti judges a node on which it starts nothing, and leaves the node as it is.
func TestObserve(t *testing.T) {
	h := host(t, "node-01")
	sh(t, h, `systemctl stop tutti-agent; puppet apply -e 'notify { "by cron": }'`)
	push(t, observedNodes, "notify { 'never': }\n")
	stands := func(want api.NodeState, why string) {
		t.Helper()
		eventually(t, "node-01 to be "+string(want)+": "+why, func() bool {
			nodes, err := fleet.Client.ListNodes(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, n := range nodes {
				if n.Node == "node-01" {
					return n.Observed && n.Stands == want && strings.Contains(n.Why, why)
				}
			}
			return false
		})
	}
	// The function `tree` lists all files, except the agent's own directories and what systemd and
	// the journal write.
	tree := func() string {
		t.Helper()
		return sh(t, h, `find / -xdev \( -path /proc -o -path /sys -o -path /run -o -path /var/log -o -path /var/lib/systemd -o -path '/var/lib/tutti*' -o -path /tmp \) -prune \
			-o \( -type f -o -type l -o -type d \) -printf '%p %m %u %s %T@ %l\n' | sort; find /etc /var/cache/puppet -type f -exec sha256sum {} + | sort`)
	}
	before := tree()
	sh(t, h, "systemctl start tutti-agent")
	stands(api.NodeGood, "") // the state comes from the report that is older than the agent's start
	if _, err := fleet.Client.StartJob(t.Context(), api.StartJob{Plan: "one", Mode: tutti.ModeNoop}); tutti.CodeOf(err) != tutti.CodeConflict {
		t.Errorf("a plan began: %v", err)
	}
	if after := tree(); after != before {
		t.Errorf("the agent has changed the machine:\n%s", changedLines(before, after))
	}
	sh(t, h, `puppet agent --disable 'kernel update'`)
	stands(api.NodeDisabled, "Puppet is disabled by root: kernel update")
	sh(t, h, `puppet agent --enable`)
	stands(api.NodeGood, "")
	sh(t, h, `puppet apply -e 'exec { "/bin/false": }' || true`)
	stands(api.NodeFailed, "resources: 1 resource failed")
	sh(t, h, `puppet apply -e 'notify { "mended": }'`)
	stands(api.NodeGood, "")
}

// changedLines returns the first lines that only one of two texts has.
func changedLines(before, after string) string {
	const most = 20
	var out []string
	was, is := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(before) {
		was[line] = true
	}
	for line := range strings.Lines(after) {
		is[line] = true
		if !was[line] {
			out = append(out, "+ "+line)
		}
	}
	for line := range strings.Lines(before) {
		if !is[line] {
			out = append(out, "- "+line)
		}
	}
	return strings.Join(out[:min(most, len(out))], "")
}
