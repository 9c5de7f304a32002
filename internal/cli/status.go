package cli

import (
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// fleetStatus is what `tutti status --json` prints.
type fleetStatus struct {
	Nodes  int                   `json:"nodes"`
	States map[api.NodeState]int `json:"states"`
	// Attention are the nodes that are not good, or of which nothing is heard.
	Attention []nodeStatus `json:"attention"`
}

type nodeStatus struct {
	Node     tutti.NodeName `json:"node"`
	State    api.NodeState  `json:"state"`
	Observed bool           `json:"observed,omitempty"`
	Away     bool           `json:"away,omitempty"` // nothing is heard of the node's agent
	Why      string         `json:"why,omitempty"`
	Since    time.Time      `json:"since,omitzero"`
}

func newStatusCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Show which nodes need attention, since when and why",
		Long: `Counts the nodes by state, and lists the nodes that are not good or away. The command
starts nothing. Monitoring can use the exit code:

   0  every node is good and connected
   1  nodes need attention
   9  all other nodes are good, but the state of some is not known: they are suspect,
      unknown or away`,
		Example: `  tutti status
  tutti status --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			nodes, err := server.ListNodes(cmd.Context())
			if err != nil {
				return err
			}
			status := statusOf(nodes)
			if o.json {
				err = printJSON(cmd.OutOrStdout(), status)
			} else {
				err = printFleetStatus(cmd.OutOrStdout(), status, nodes, time.Now())
			}
			if err == nil && status.exit() != ExitOK {
				err = CommandExit(status.exit())
			}
			return err
		},
	}
}

// statusOf returns the status of a fleet. The nodes of the worst states come last, so that they are visible in a terminal.
func statusOf(nodes []api.NodeView) fleetStatus {
	out := fleetStatus{Nodes: len(nodes), States: map[api.NodeState]int{}, Attention: []nodeStatus{}}
	for _, n := range nodes {
		out.States[n.Stands]++
		if n.Stands != api.NodeGood || !n.Connected {
			out.Attention = append(out.Attention, nodeStatus{Node: n.Node, State: n.Stands, Observed: n.Observed, Away: !n.Connected, Why: n.Why, Since: n.Since})
		}
	}
	slices.SortStableFunc(out.Attention, func(a, b nodeStatus) int { return byState(a.State, b.State) })
	return out
}

// exit returns the exit code for monitoring.
func (s fleetStatus) exit() int {
	code := ExitOK
	for _, n := range s.Attention {
		switch n.State {
		case api.NodeGood, api.NodeSuspect, api.NodeUnknown: // nobody knows whether the node is good
			code = ExitPartial
		case api.NodeStale, api.NodeWaiting, api.NodeFailed, api.NodeNew, api.NodeSilent, api.NodeDisabled, api.NodeDrifting:
			return ExitFailed
		default: // a state of a later release
			return ExitFailed
		}
	}
	return code
}

func printFleetStatus(w io.Writer, s fleetStatus, nodes []api.NodeView, now time.Time) error {
	if s.Nodes == 0 {
		_, err := fmt.Fprintln(w, "There are no nodes.")
		return err
	}
	if _, err := fmt.Fprintln(w, countStands(nodes)); err != nil || len(s.Attention) == 0 {
		return err
	}
	var rows [][]string
	for _, n := range s.Attention {
		why := tutti.OneLine(n.Why)
		if n.Away && n.State != api.NodeUnknown {
			why = orDash(why) + " (away)"
		}
		rows = append(rows, []string{string(n.Node), string(n.State), ago(n.Since, now), orDash(why)})
	}
	return table(w, "NODE\tSTANDS\tSINCE\tWHY", rows)
}
