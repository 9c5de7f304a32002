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

// The method `signed` adds the operator's signature to a request, if operators sign changes in this fleet. An
// operator signs the names of nodes, and not a selector. So the method first asks the server which nodes are
// selected. If the server does not know whether a node is selected, the method returns an answer that says so. The
// node is then not asked.
func (r *remote) signed(cmd *cobra.Command, server Server) (api.NodesQuestion, []api.NodeAnswer, error) {
	in := r.in
	if !in.Action.Effect() {
		return in, nil, nil
	}
	said, err := server.Signing(cmd.Context())
	if tutti.CodeOf(err) != tutti.CodeNotFound && err != nil {
		return in, nil, err
	}
	if said.Operators == nil { // nobody signs actions; a server of release 0.2.0 or earlier also sends no list
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

// The server says which nodes an expression selects. The function `meant` checks this with the names of the nodes.
// If the expression is false for a node's name, the function returns an error. The result `nodes` contains the
// selected nodes, sorted. The result `undecided` contains the nodes for which the server does not know whether they
// are selected. The result `unsure` is the number of selected nodes whose names are not enough for the check.
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

// confirmNodes prints the names of the nodes for which an operator will sign. If the function `meant` could not check
// all of them, confirmNodes asks the operator.
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
