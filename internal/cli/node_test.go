package cli_test

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
)

// nodesOnly is a server with two nodes. The second node has an agent of an earlier release.
type nodesOnly struct{ cli.Server }

func (nodesOnly) ListNodes(context.Context) ([]api.NodeView, error) {
	return []api.NodeView{{Node: "db-01", Version: "0.3.0", OldGrants: []string{"Mount", "Service"}}, {Node: "web-01", Version: "0.2.0", TooOldFor: []tutti.Capability{"debug", "of_later"}}}, nil
}

func (s nodesOnly) ShowNode(ctx context.Context, name tutti.NodeName) (api.NodeDetail, error) {
	nodes, err := s.ListNodes(ctx)
	for _, n := range nodes {
		if n.Node == name {
			return api.NodeDetail{NodeView: n}, err
		}
	}
	return api.NodeDetail{}, err
}

// TestWhoIsTooOld checks old agents and old grants. The list of nodes and the view of one node name the affected
// node, the agent's version and the remedy. They say nothing about other nodes.
func TestWhoIsTooOld(t *testing.T) {
	const says = "its agent (0.2.0) does not know debug, of_later: upgrade tutti on web-01"
	const old = "node db-01 may export Mount, Service by grants from before 0.3.0: these grants give root on every node that collects the exports"
	cases := []struct {
		args, out, err string
	}{
		{"node list", "", "web-01: " + says + "\n" + old + "; see: tutti grants suggest\n"},
		{"node show web-01", "too old   " + says + "\n", ""},
		{"node show db-01", "grants    " + old + "\n", ""},
		{"node list --json", `"too_old_for": [`, ""},
	}
	for _, tc := range cases {
		root := cli.NewRoot(cli.Deps{Connect: func(cli.Connection) (cli.Server, error) { return nodesOnly{}, nil }})
		var out, errs bytes.Buffer
		root.SetArgs(strings.Fields(tc.args))
		root.SetOut(&out)
		root.SetErr(&errs)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Errorf("tutti %s: %v", tc.args, err)
		}
		if !strings.Contains(out.String(), tc.out) || strings.Contains(out.String(), "too old") != (strings.HasPrefix(tc.out, "too old")) {
			t.Errorf("tutti %s says\n%s\nwant %q", tc.args, out.String(), tc.out)
		}
		if errs.String() != tc.err {
			t.Errorf("tutti %s says beside it %q, want %q", tc.args, errs.String(), tc.err)
		}
	}
}

// The type `standing` is a server whose nodes are in given states.
type standing struct {
	cli.Server
	nodes []api.NodeView
}

func (s standing) ListNodes(context.Context) ([]api.NodeView, error) { return s.nodes, nil }

// TestNodesStand checks that the line of each node shows its state, and that the last line has the counts. If the
// server is of an earlier release, the states are not shown.
func TestNodesStand(t *testing.T) {
	const head = "NODE  STATE  SEEN   STANDS         LAST RUN        BEGAN  JOB  GROUPS\n"
	cases := []struct {
		reason string
		nodes  []api.NodeView
		want   string
	}{
		{"they stand in different ways", []api.NodeView{
			{Node: "a", Stands: api.NodeStale, Outcome: tutti.Unchanged},
			{Node: "b", Stands: api.NodeGood, Proved: true},
			{Node: "c", Stands: api.NodeGood, Outcome: tutti.Changed},
			{Node: "d", Stands: "of later"},
			{Node: "e", Stands: api.NodeFailed, Outcome: tutti.Failed, Reason: tutti.BecauseCompile},
		}, head +
			"a     away   never  stale          unchanged       never  -    -\n" +
			"b     away   never  good (proved)  proof           never  -    -\n" +
			"c     away   never  good           changed         never  -    -\n" +
			"d     away   never  of later       -               never  -    -\n" +
			"e     away   never  failed         failed:compile  never  -    -\n" +
			"2 good, 1 stale, 1 failed, 1 of later\n"},
		{"the server does not say", []api.NodeView{{Node: "a"}},
			"NODE  STATE  SEEN   STANDS  LAST RUN  BEGAN  JOB  GROUPS\na     away   never  -       -         never  -    -\n"},
	}
	for _, tc := range cases {
		root := cli.NewRoot(cli.Deps{Connect: func(cli.Connection) (cli.Server, error) { return standing{nodes: tc.nodes}, nil }})
		var out bytes.Buffer
		root.SetArgs([]string{"node", "list"})
		root.SetOut(&out)
		if err := root.ExecuteContext(t.Context()); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}
