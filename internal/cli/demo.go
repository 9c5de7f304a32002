package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// Demos are the examples for which there is a demonstration.
var Demos = []string{"compute", "swift", "web"}

// Demo are the settings of a demonstration.
type Demo struct {
	Name string
	Keep bool
	JSON bool
	Dir  string // directory of the examples

	Converge bool // deploy the example by converging, and not with its plan
	UI       bool // show the fleet in a browser, and wait until this page is closed

	Release string // Debian release that replaces the release in the lab file
}

// demoLine is the last line of a demonstration that uses converge. demoLine describes the first job, and counts the
// runs and compiles of the second job.
type demoLine struct {
	summaryLine
	SecondRuns     int `json:"second_runs"`
	SecondCompiles int `json:"second_compiles"`
}

func newDemoCommand(o *options) *cobra.Command {
	var in Demo
	cmd := &cobra.Command{
		Use:   "demo " + strings.Join(Demos, "|"),
		Short: "Deploy an example on hosts of a lab, and use it",
		Example: `  tutti demo web
  tutti demo swift --converge --keep`,
		Args:      cobra.ExactArgs(1),
		ValidArgs: Demos,
		RunE: func(cmd *cobra.Command, args []string) error {
			if !slices.Contains(Demos, args[0]) {
				return tutti.Errorf(tutti.CodeInvalid, "there is no demo %q; the demos are: %s", args[0], strings.Join(Demos, ", "))
			}
			in.Name, in.JSON = args[0], o.json
			var shown []summaryLine
			err := o.deps.Demo(cmd.Context(), in, func(ctx context.Context, s Server, job tutti.JobID) error {
				cmd.SetContext(ctx)
				p := newProgress()
				defer func() { shown = append(shown, summarize(p.job(), time.Now())) }()
				return o.watchInto(cmd, s, job, p)
			})
			if err != nil || !o.json || len(shown) != 2 {
				return err
			}
			return newEncoder(cmd.OutOrStdout()).Encode(demoLine{shown[0], shown[1].Runs, shown[1].Compiles})
		},
	}
	cmd.Flags().BoolVar(&in.Keep, "keep", false, "keep the lab afterwards")
	cmd.Flags().BoolVar(&in.Converge, "converge", false, "converge without a plan: the order follows from what the nodes read and publish")
	cmd.Flags().BoolVar(&in.UI, "ui", false, "show the fleet in a browser on this machine, until Ctrl-C")
	cmd.Flags().StringVar(&in.Release, "release", "", "Debian release: trixie (Puppet 8, the default) or bookworm (Puppet 7)")
	cmd.Flags().StringVar(&in.Dir, "examples", "examples", "directory with the examples")
	return cmd
}
