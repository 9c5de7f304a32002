package cli

import (
	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newConvergeCommand(o *options) *cobra.Command {
	var l launch
	var noop, plan bool
	var in tutti.ConvergeStep
	cmd := &cobra.Command{
		Use:   "converge [TARGET]",
		Short: "Run Puppet where it is needed, in the order that the data requires",
		Long: `Brings the nodes of a group, one node, or the whole fleet (without TARGET) to a good
state, without a plan. The order follows from what each run reads and publishes. A
node does not run if nothing that it reads has changed. The command first pushes code
and fleet file if they changed.

The command ends with a verdict, which gives the exit code:
   0  converged
   1  failed: a run failed
   7  stuck: every node that is not good waits for a missing answer
   8  diverging: nodes keep changing each other's data
   9  partial: every reachable node is good, some are disconnected or paused`,
		Example: `  tutti converge --plan
  tutti converge web --noop
  tutti converge`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				in.Target = args[0]
			}
			start := api.StartJob{Converge: &in, Mode: tutti.ModeApply}
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
	f.BoolVar(&plan, "plan", false, "only compile, up to the gates; show what would run, in which order and why")
	f.BoolVar(&in.Prove, "prove", false, "also compile nodes where nothing has changed, and apply if the catalog differs; nodes of a Puppet Server run")
	f.IntVar(&in.Limit, "limit", 0, "largest number of runs at once; 0: this job has no limit")
	f.IntVar(&in.MaxFailed, "max-failed", 0, "start no more runs after this many failed nodes; 0: no limit")
	cmd.MarkFlagsMutuallyExclusive("noop", "plan")
	return cmd
}
