//go:build e2e

package e2e_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
)

const canaryFleet = "reactive: true\nreaction: {code: {canary: 1}}" + everyNode

// canarySite writes a version; where a flag is, it fails.
func canarySite(version string, fails bool) string {
	site := fmt.Sprintf("file { '/run/e2e-canary': content => '%s' }\n", version)
	if fails {
		site += "-> exec { '/bin/false': }\n"
	}
	return site
}

// versions are what the nodes have of canarySite.
func versions(t *testing.T) (out []string) {
	t.Helper()
	for _, h := range fleet.Nodes {
		out = append(out, strings.TrimSpace(sh(t, h, "cat /run/e2e-canary 2> /dev/null || true")))
	}
	slices.Sort(out)
	return out
}

// TestCanary: new code runs on one node by itself. While that is not good, no other node has it; code that is good there
// comes to all, first to the node that ran with what was never released.
func TestCanary(t *testing.T) {
	t.Cleanup(func() { push(t, everyNode, "") })
	for _, h := range fleet.Nodes {
		later(t, h, "rm -f /run/e2e-canary")
	}
	push(t, canaryFleet, canarySite("one", false))
	converge(t, fleet).end() // of the whole fleet: the code is released
	if got := versions(t); !slices.Equal(got, []string{"one", "one", "one"}) {
		t.Fatalf("the nodes have %v", got)
	}

	push(t, canaryFleet, canarySite("two", true))
	eventually(t, "one node to fail with the new code", func() bool {
		nodes, err := fleet.Client.ListNodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(n tutti.NodeView) bool { return n.Stands == tutti.NodeFailed })
	})
	if err := fleet.Client.SetValue(t.Context(), "shared/canary/other", []byte(`1`)); err != nil { // something else happens
		t.Fatal(err)
	}
	shown, code := tuttiCLI(t, fleet, "code", "show")
	if code != 0 || !strings.Contains(shown, "1 node had it in the last run, 2 not") {
		t.Errorf("tutti code show: exit code %d: %s", code, shown)
	}
	if got := versions(t); !slices.Equal(got, []string{"one", "one", "two"}) {
		t.Errorf("while the canary is not good the nodes have %v", got)
	}

	push(t, canaryFleet, canarySite("three", false))
	eventually(t, "all nodes to have the code that is good", func() bool {
		return slices.Equal(versions(t), []string{"three", "three", "three"})
	})
	if got := canariesOf(t); len(got) < 2 || len(got[0]) != 1 || len(got[1]) != 1 || got[0][0] != got[1][0] {
		t.Errorf("the jobs of the new code had the nodes %v: want the same canary alone, twice, and then the others", got)
	}
}

// canariesOf are the nodes of the jobs that the server began since the last converge, the oldest first.
func canariesOf(t *testing.T) (out [][]tutti.NodeName) {
	t.Helper()
	jobs, err := fleet.Client.ListJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(jobs, func(a, b tutti.JobView) int { return b.StartedAt.Compare(a.StartedAt) })
	for _, v := range jobs {
		if v.Cause == "" {
			break
		}
		j := (&job{id: v.Job, t: t, f: fleet}).end()
		var nodes []tutti.NodeName
		for _, st := range j.Steps {
			for _, n := range st.Nodes {
				if len(n.Runs) > 0 {
					nodes = append(nodes, n.Node)
				}
			}
		}
		if len(nodes) > 0 {
			out = append(out, nodes)
		}
	}
	slices.Reverse(out)
	return out
}
