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

// signed adds the operator's signature to a request, if operators sign changes in this fleet. An operator signs the
// names of nodes, and not a selector. So the method first asks the server which nodes are selected. If this is
// unknown for a node, the method itself returns an answer for this node.
func (r *remote) signed(cmd *cobra.Command, server Server) (api.NodesQuestion, []api.NodeAnswer, error) {
	in := r.in
	if !in.Action.Effect() {
		return in, nil, nil
	}
	said, err := server.Signing(cmd.Context())
	if tutti.CodeOf(err) != tutti.CodeNotFound && err != nil {
		return in, nil, err
	}
	if said.Operators == nil { // also nil if the server is of release 0.2.0 or earlier
		return in, nil, nil
	}
	chosen, err := askAll(cmd, server, api.NodesQuestion{Action: tutti.RemoteStatus, On: in.On, Wait: in.Wait})
	if err != nil {
		return in, nil, err
	}
	nodes, undecided, unsure, err := meant(in.On, chosen)
	if err != nil {
		return in, nil, err
	}
	if len(nodes) == 0 {
		return in, undecided, tutti.Errorf(tutti.CodeConflict, "it is unknown which nodes %s selects; see: tutti puppet status --on", in.On)
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

// meant checks the list of nodes that an expression selects according to the server. The function returns the
// selected nodes, sorted, and the nodes for which the selection is unknown. If a node's name already shows that
// the node is not selected, the function returns an error. The result `unsure` is the number of selected nodes
// whose names do not show that they are selected.
func meant(on string, chosen []api.NodeAnswer) (nodes []tutti.NodeName, undecided []api.NodeAnswer, unsure int, err error) {
	expression, err := selector.Parse(on)
	if err != nil {
		return nil, nil, 0, err
	}
	for _, a := range chosen {
		answer, err := expression.ByName(a.Node)
		if err == nil && answer == selector.No {
			return nil, nil, 0, tutti.Errorf(tutti.CodeRefused, "the server names node %q, but --on %q does not select it: nothing is signed", string(a.Node), on)
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

// confirmNodes prints the names of the nodes for which an operator will sign. If the names alone do not show that the
// nodes are selected, confirmNodes asks the operator.
func (r *remote) confirmNodes(cmd *cobra.Command, nodes []tutti.NodeName, unsure int) error {
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = tutti.Plain(string(n), maxLine)
	}
	fmt.Fprintf(cmd.ErrOrStderr(), "%s is signed for %s: %s\n", r.in.Action, count(len(nodes), "node"), strings.Join(names, ", "))
	if unsure == 0 {
		return nil
	}
	return r.confirm(cmd, fmt.Sprintf("sign it (for %s only the server knows whether %s is true)", count(unsure, "node"), r.in.On))
}
