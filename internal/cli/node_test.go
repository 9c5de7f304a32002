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

// TestStatus checks the counts, the list of nodes that need attention, and the exit code for monitoring.
func TestStatus(t *testing.T) {
	good := api.NodeView{Node: "a", Stands: api.NodeGood, Connected: true}
	failed := api.NodeView{Node: "f", Stands: api.NodeFailed, Connected: true, Observed: true, Why: "resources: 1 resource failed\nx"}
	for _, tc := range []struct {
		reason string
		nodes  []api.NodeView
		want   string
		exit   int
	}{
		{"no nodes", nil, "There are no nodes.\n", cli.ExitOK},
		{"all good", []api.NodeView{good}, "1 good\n", cli.ExitOK},
		{"a good node is away", []api.NodeView{good, {Node: "b", Stands: api.NodeGood}},
			"2 good\nNODE  STANDS  SINCE  WHY\nb     good    never  - (away)\n", cli.ExitPartial},
		{"of one node nothing is known", []api.NodeView{good, {Node: "b", Stands: api.NodeUnknown, Why: "nothing is heard of its agent"}},
			"1 good, 1 unknown\nNODE  STANDS   SINCE  WHY\nb     unknown  never  nothing is heard of its agent\n", cli.ExitPartial},
		{"the worst comes last", []api.NodeView{failed, {Node: "b", Stands: api.NodeStale, Connected: true, Why: "other code"}, good},
			"1 good, 1 stale, 1 failed\nNODE  STANDS  SINCE  WHY\nb     stale   never  other code\nf     failed  never  resources: 1 resource failed x\n", cli.ExitFailed},
		{"a state of a later release", []api.NodeView{{Node: "d", Stands: "of later", Connected: true}},
			"1 of later\nNODE  STANDS    SINCE  WHY\nd     of later  never  -\n", cli.ExitFailed},
	} {
		root := cli.NewRoot(cli.Deps{Connect: func(cli.Connection) (cli.Server, error) { return standing{nodes: tc.nodes}, nil }})
		var out bytes.Buffer
		root.SetArgs([]string{"status"})
		root.SetOut(&out)
		if exit := cli.ExitCode(root.ExecuteContext(t.Context())); exit != tc.exit {
			t.Errorf("%s: exit code %d, want %d", tc.reason, exit, tc.exit)
		}
		if diff := cmp.Diff(tc.want, out.String()); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
	}
}

// TestListedStates checks that --state selects nodes, and refuses an unknown state.
func TestListedStates(t *testing.T) {
	nodes := []api.NodeView{{Node: "a", Stands: api.NodeGood}, {Node: "b", Stands: api.NodeSilent, Observed: true}, {Node: "c", Stands: api.NodeFailed}}
	list := func(states string) (string, error) {
		root := cli.NewRoot(cli.Deps{Connect: func(cli.Connection) (cli.Server, error) { return standing{nodes: nodes}, nil }})
		var out bytes.Buffer
		root.SetArgs([]string{"node", "list", "--state", states})
		root.SetOut(&out)
		err := root.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := list("silent,failed")
	if err != nil || !strings.Contains(out, "b     away   never  silent (observed)") || !strings.Contains(out, "\n1 failed, 1 silent\n") || strings.Contains(out, "\na ") {
		t.Errorf("silent,failed: %v\n%s", err, out)
	}
	if _, err := list("god"); tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), `unknown state "god"`) {
		t.Errorf("god: %v", err)
	}
}
