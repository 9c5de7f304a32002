//go:build e2e

package e2e_test

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

const canaryFleet = "reactive: true\nreaction: {code: {canary: 1}}" + everyNode

// canarySite writes a version to a file. If `fails` is true, the code fails during the compile, and Tutti does not try
// the run again.
func canarySite(version string, fails bool) string {
	if fails {
		return fmt.Sprintf("fail('%s is not for you')\n", version)
	}
	return fmt.Sprintf("file { '/run/e2e-canary': content => '%s' }\n", version)
}

// versions returns the versions that the nodes have from canarySite.
func versions(t *testing.T) (out []string) {
	t.Helper()
	for _, h := range fleet.Nodes {
		out = append(out, strings.TrimSpace(sh(t, h, "cat /run/e2e-canary 2> /dev/null || true")))
	}
	slices.Sort(out)
	return out
}

// TestCanary checks that the server itself first runs new code on one node. Before this node is good, no other node
// gets the code. When this node is good, all nodes get the code. If one node has already run unreleased code, the next
// code runs first on the same node.
func TestCanary(t *testing.T) {
	defer push(t, everyNode, "") // the context of a test ends before its cleanup functions run
	for _, h := range fleet.Nodes {
		later(t, h, "rm -f /run/e2e-canary")
	}
	push(t, canaryFleet, canarySite("one", false))
	converge(t, fleet).end() // a converge of the whole fleet releases the code
	if got := versions(t); !slices.Equal(got, []string{"one", "one", "one"}) {
		t.Fatalf("the nodes have %v", got)
	}

	push(t, canaryFleet, canarySite("two", true))
	within(t, patience, "one node to fail with the new code", func() bool {
		nodes, err := fleet.Client.ListNodes(t.Context())
		return err == nil && slices.ContainsFunc(nodes, func(n api.NodeView) bool { return n.Stands == api.NodeFailed })
	})
	if err := fleet.Client.SetValue(t.Context(), "shared/canary/other", []byte(`1`)); err != nil { // this change must not bring the new code to other nodes
		t.Fatal(err)
	}
	shown, code := tuttiCLI(t, fleet, "code", "show")
	if code != 0 || !strings.Contains(shown, "; nodes that run by themselves use sha256:") {
		t.Errorf("tutti code show: exit code %d: %s", code, shown)
	}
	first := serverRuns(t)
	if len(first) != 1 || first[0].Outcome() != tutti.Failed {
		t.Fatalf("while the canary is not good there are %d runs by themselves: want one that failed", len(first))
	}
	if got := versions(t); !slices.Equal(got, []string{"one", "one", "one"}) {
		t.Errorf("while the canary is not good the nodes have %v", got)
	}

	push(t, canaryFleet, canarySite("three", false))
	within(t, patience, "all nodes to have the code that is good", func() bool {
		return slices.Equal(versions(t), []string{"three", "three", "three"})
	})
	then := serverRuns(t)[1:]
	for _, r := range then[1:] {
		if canary := then[0]; canary.Node != first[0].Node || r.Node == canary.Node || canary.EndedSeq > r.GatedSeq {
			t.Errorf("%s went on (%d) after %s had ended (%d): want %s first, and then the others", r.Node, r.GatedSeq, canary.Node, canary.EndedSeq, first[0].Node)
		}
	}
}

// serverRuns returns the runs of the jobs that the server has begun by itself since the last job of a person. The
// oldest run is the first.
func serverRuns(t *testing.T) (out []*engine.Run) {
	t.Helper()
	jobs, err := fleet.Client.ListJobs(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(jobs, func(a, b api.JobView) int { return b.StartedAt.Compare(a.StartedAt) })
	for _, v := range jobs {
		if v.Cause == "" {
			break
		}
		j := (&job{id: v.Job, t: t, f: fleet}).end()
		for _, st := range j.Steps {
			for _, n := range st.Nodes {
				out = append(out, n.Runs...)
			}
		}
	}
	slices.SortFunc(out, func(a, b *engine.Run) int { return cmp.Compare(a.Seq, b.Seq) })
	return out
}
