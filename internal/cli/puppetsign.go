package cli

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/selector"
)

// signed returns the request with the operator's signature, if operators sign what nodes change. An operator
// signs names of nodes, not a selector. So signed first asks which nodes are selected. If that cannot be said for
// a node, the node is in the returned answers.
func (r *remote) signed(cmd *cobra.Command, server Server) (api.AskNodes, []api.NodeAnswer, error) {
	in := r.in
	if !in.Action.Effect() {
		return in, nil, nil
	}
	said, err := server.Signing(cmd.Context())
	if tutti.CodeOf(err) != tutti.CodeNotFound && err != nil {
		return in, nil, err
	}
	if said.Operators == nil { // or the server is of release 0.2.0 or before
		return in, nil, nil
	}
	chosen, err := askAll(cmd, server, api.AskNodes{Action: tutti.RemoteStatus, On: in.On, Wait: in.Wait})
	if err != nil {
		return in, nil, err
	}
	nodes, undecided, unsure, err := meant(in.On, chosen)
	if err != nil {
		return in, nil, err
	}
	if len(nodes) == 0 {
		return in, undecided, tutti.Errorf(tutti.CodeConflict, "nobody can say which nodes %s selects; see: tutti puppet status --on", in.On)
	}
	if err := r.confirmNodes(cmd, nodes, unsure); err != nil {
		return in, nil, err
	}
	if in.Action == tutti.RemoteDisable && in.Message == "" {
		in.Message = "Disabled via Tutti at " + time.Now().UTC().Format("2006-01-02 15:04")
	}
	in.Signed, err = r.deps.SignAction(cmd.Context(), server, r.conn, in, nodes)
	return in, undecided, err
}

// meant checks the nodes that the server says an expression selects. It returns the selected nodes, sorted, and the nodes for
// which that cannot be said. It is an error if a node's name already shows that the node is not selected. unsure is how many
// nodes are selected only by what the server says, because the expression uses more than the name.
func meant(on string, chosen []api.NodeAnswer) (nodes []tutti.NodeName, undecided []api.NodeAnswer, unsure int, err error) {
	expression, err := selector.Parse(on)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, a := range chosen {
		answer, err := expression.ByName(a.Node)
		if err == nil && answer == selector.No {
			return nil, nil, 0, tutti.Errorf(tutti.CodeRefused, "the server names node %q, which --on %q does not select: nothing is signed", string(a.Node), on)
		}
		if a.Verdict == tutti.RemoteUndecided {
			undecided = append(undecided, a)
			continue
		}
		if err != nil || answer != selector.Yes {
			unsure++
		}
		nodes = append(nodes, a.Node)
	}
	slices.Sort(nodes)
	return nodes, undecided, unsure, nil
}

// confirmNodes names the nodes that an operator is about to sign for. If the names alone do not show that the nodes are
// selected, it asks.
func (r *remote) confirmNodes(cmd *cobra.Command, nodes []tutti.NodeName, unsure int) error {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = tutti.Plain(string(n), maxLine)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is signed for %s: %s\n", r.in.Action, count(len(nodes), "node"), strings.Join(names, ", "))
	if unsure == 0 {
		return nil
	}
	return r.confirm(cmd, fmt.Sprintf("sign it (for %s the server alone says that %s is true)", count(unsure, "node"), r.in.On))
}
