package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// Demo says what a demonstration does.
type Demo struct {
	Name string
	Keep bool
	JSON bool
	Dir  string // of the examples

	Converge bool // without the plan

	Release string // of Debian, instead of the lab file's
}

func newDemoCommand(o *options) *cobra.Command {
	var in Demo
	cmd := &cobra.Command{
		Use:       "demo swift",
		Short:     "Deploy OpenStack Swift on four hosts of a lab, and use it",
		Args:      cobra.ExactArgs(1),
		ValidArgs: []string{"swift"},
		RunE: func(cmd *cobra.Command, args []string) error {
			if args[0] != "swift" {
				return tutti.Errorf(tutti.CodeInvalid, "no demo %q; there is: swift", args[0])
			}
			in.Name, in.JSON = args[0], o.json
			return o.deps.Demo(cmd.Context(), in, func(ctx context.Context, s Server, job tutti.JobID) error {
				cmd.SetContext(ctx)
				return o.watch(cmd, s, job)
			})
		},
	}
	cmd.Flags().BoolVar(&in.Keep, "keep", false, "keep the lab afterwards")
	cmd.Flags().BoolVar(&in.Converge, "converge", false, "without a plan: the order is inferred from what the nodes read and publish")
	cmd.Flags().StringVar(&in.Release, "release", "", "Debian release: trixie (Puppet 8, the default) or bookworm (Puppet 7)")
	cmd.Flags().StringVar(&in.Dir, "examples", "examples", "directory with the examples")
	return cmd
}
