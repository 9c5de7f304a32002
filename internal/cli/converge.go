package cli

import (
	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

func newConvergeCommand(o *options) *cobra.Command {
	var l launch
	var noop, plan bool
	var in tutti.ConvergeStep
	cmd := &cobra.Command{
		Use:   "converge [TARGET]",
		Short: "Run Puppet where and until it is needed, in the order that the nodes' data asks for",
		Long: `Brings the nodes of a group, one node, or (without a target) the whole fleet to
where they are good, without a plan. What each run reads and publishes says who
runs after whom; a node whose reads are as they were does not run. Pushes code
and fleet file first if they changed.

Ends with a verdict: converged (exit code 0), failed (1), stuck (7: all that is
not good waits for a missing answer), diverging (8: nodes keep changing each
other's data) or partial (9: all are good but nodes that are not connected or
are paused).`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				in.Target = args[0]
			}
			start := tutti.StartJob{Converge: &in, Mode: tutti.ModeApply}
			switch {
			case plan:
				start.Mode = tutti.ModeCompile
			case noop:
				start.Mode = tutti.ModeNoop
			}
			return o.launch(cmd, l, start)
		},
	}
	l.flags(cmd)
	o.addYes(cmd)
	f := cmd.Flags()
	f.BoolVar(&noop, "noop", false, "change nothing on the nodes and publish nothing: show what would change")
	f.BoolVar(&plan, "plan", false, "only compile, up to the gates, and say what would run, in which order and why")
	f.BoolVar(&in.Prove, "prove", false, "compile also where nothing has changed, and apply if the catalog is another one; nodes of a Puppet Server run")
	f.IntVar(&in.Limit, "limit", 0, "runs at once, 0: no limit of its own")
	f.IntVar(&in.MaxFailed, "max-failed", 0, "after so many failed nodes nothing more begins, 0: go on")
	cmd.MarkFlagsMutuallyExclusive("noop", "plan")
	return cmd
}
