package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// chooser is a server that returns a given selection of nodes.
type chooser struct {
	Server
	says []api.NodeAnswer
}

func (chooser) Signing(context.Context) (tutti.Signing, error) {
	return tutti.Signing{Operators: &tutti.Statement{}}, nil
}

func (c chooser) AskNodes(_ context.Context, in api.NodesQuestion, yield func([]api.NodeAnswer) error) error {
	if in.Action.Effect() {
		return nil
	}
	return yield(c.says)
}

// TestWhichNodesAreSigned checks which nodes an operator signs for. The server evaluates the expression. If the
// expression is false for a node's name, the command signs nothing. If the name is not enough to evaluate the
// expression, the command asks the operator.
func TestWhichNodesAreSigned(t *testing.T) {
	ok := func(n tutti.NodeName) api.NodeAnswer { return api.NodeAnswer{Node: n, Verdict: tutti.RemoteOK} }
	for _, tc := range []struct {
		on     string
		says   []tutti.NodeName
		yes    bool
		signed string
		told   string // to the operator
	}{
		{`node == "web-01"`, []tutti.NodeName{"web-01"}, false, "web-01", "disable is signed for 1 node: web-01"},
		{`node == "web-01"`, []tutti.NodeName{"web-01", "db-99"}, false, "", `node "db-99", but`},
		{`node == "web-01"`, []tutti.NodeName{"web-01", "db-99"}, true, "", `node "db-99", but`},
		{`node == "web-01" && connected`, []tutti.NodeName{"db-99"}, true, "", `node "db-99", but`},
		{`true`, []tutti.NodeName{"web-02", "web-01"}, false, "web-01 web-02", "2 nodes: web-01, web-02"},
		{`"web" in groups`, []tutti.NodeName{"web-01", "db-99"}, false, "", "2 nodes: db-99, web-01"},
		{`"web" in groups`, []tutti.NodeName{"web-01", "db-99"}, false, "", "not confirmed; add --yes"},
		{`"web" in groups`, []tutti.NodeName{"web-01", "db-99"}, true, "db-99 web-01", "2 nodes: db-99, web-01"},
	} {
		server, signed := chooser{}, ""
		for _, n := range tc.says {
			server.says = append(server.says, ok(n))
		}
		root := NewRoot(Deps{
			Connect: func(Connection) (Server, error) { return server, nil },
			SignAction: func(_ context.Context, _ Server, _ Connection, _ api.NodesQuestion, nodes []tutti.NodeName) ([]tutti.Statement, error) {
				for _, n := range nodes {
					signed = strings.TrimSpace(signed + " " + string(n))
				}
				return nil, nil
			},
		})
		var told bytes.Buffer
		args := []string{"puppet", "disable", "--on", tc.on, "-m", "new disk"}
		if tc.yes {
			args = append(args, "--yes")
		}
		root.SetArgs(args)
		root.SetIn(&bytes.Buffer{})
		root.SetOut(&bytes.Buffer{})
		root.SetErr(&told)
		if err := root.ExecuteContext(t.Context()); err != nil {
			told.WriteString(err.Error())
		}
		if signed != tc.signed || !strings.Contains(told.String(), tc.told) {
			t.Errorf("%s, and the server says %v, --yes %t: signed for %q, told %q", tc.on, tc.says, tc.yes, signed, told.String())
		}
	}
}
