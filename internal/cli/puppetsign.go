package cli

import (
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// signed returns the question with what the operator signs of it, where operators sign what nodes change. An operator
// signs names, not a selector: which nodes these are is asked for first, and those of which nobody can say it are
// answers already.
func (r *remote) signed(cmd *cobra.Command, server Server) (tutti.AskNodes, []tutti.NodeAnswer, error) {
	in := r.in
	if !in.Action.Effect() {
		return in, nil, nil
	}
	said, err := server.Signing(cmd.Context())
	if tutti.CodeOf(err) != tutti.CodeNotFound && err != nil {
		return in, nil, err
	}
	if said.Operators == nil { // or a server of release 0.2.0 or before
		return in, nil, nil
	}
	chosen, err := askAll(cmd, server, tutti.AskNodes{Action: tutti.RemoteStatus, On: in.On, Wait: in.Wait})
	if err != nil {
		return in, nil, err
	}
	var nodes []tutti.NodeName
	var undecided []tutti.NodeAnswer
	for _, a := range chosen {
		if a.Verdict == tutti.RemoteUndecided {
			undecided = append(undecided, a)
			continue
		}
		nodes = append(nodes, a.Node)
	}
	if len(nodes) == 0 {
		return in, undecided, tutti.Errorf(tutti.CodeConflict, "nobody can say which nodes %s selects; see: tutti puppet status --on", in.On)
	}
	slices.Sort(nodes)
	if in.Action == tutti.RemoteDisable && in.Message == "" {
		in.Message = "Disabled via Tutti at " + time.Now().UTC().Format("2006-01-02 15:04")
	}
	in.Signed, err = r.deps.SignAction(cmd.Context(), server, r.conn, in, nodes)
	return in, undecided, err
}
