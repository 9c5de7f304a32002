package cli

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// LeaveNode are the settings with which a machine leaves its fleet.
type LeaveNode struct {
	Dir     string
	Offline bool
}

// LeftNode is the result of leaving a fleet.
type LeftNode struct {
	Node    tutti.NodeName `json:"node"`
	Told    bool           `json:"told"` // the server has removed the node
	Remains []string       `json:"remains,omitempty"`
	Owed    []string       `json:"owed,omitempty"` // resources that the node's runs should have refreshed, but have not
}

// Leaver makes this machine leave its fleet.
type Leaver func(ctx context.Context, o LeaveNode) (LeftNode, error)

func newLeaveCommand(o *options) *cobra.Command {
	var in LeaveNode
	cmd := &cobra.Command{
		Use:   "leave",
		Short: "Undo the join: this machine is not a node afterwards",
		Long: `Tells the server, which withdraws the data that the node published. Then
the command stops the agent, and removes the agent's unit and state. The command does not remove
the program tutti, or anything that Puppet applied. The command refuses while a run goes on.`,
		Example: "  tutti leave",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.confirm(cmd, "leave the fleet and remove "+in.Dir); err != nil {
				return err
			}
			left, err := o.deps.Leave(cmd.Context(), in)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), left)
			}
			fmt.Fprintf(cmd.OutOrStdout(), "This machine is no longer the node %s.\n", left.Node)
			if !left.Told {
				fmt.Fprintf(cmd.OutOrStdout(), "The server was not told: the node's key stays valid and its data stay until an operator runs: tutti node remove %s\n", left.Node)
			}
			for _, resource := range left.Owed {
				fmt.Fprintf(cmd.OutOrStdout(), "Not refreshed yet, and Tutti will not refresh it any more: %s\n", resource)
			}
			for _, path := range left.Remains {
				fmt.Fprintf(cmd.OutOrStdout(), "Not created by Tutti, and not removed: %s\n", path)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Dir, "dir", DefaultAgentDir, "the agent's state directory")
	f.BoolVar(&in.Offline, "offline", false, "do not contact the server; results that the server does not have yet are lost")
	o.addYes(cmd)
	return cmd
}
