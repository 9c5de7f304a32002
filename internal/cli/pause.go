package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newPauseCommand(o *options) *cobra.Command {
	var in api.Pause
	cmd := &cobra.Command{
		Use:   "pause [TARGET] --reason TEXT",
		Short: "Pause a group, a node or the fleet: no converging, no reactions",
		Long: `Pauses a group, a node, or the whole fleet (without TARGET). Until the
pause ends, no run starts on these nodes by itself, by "tutti converge", or by a
converge step of a plan. Runs that have passed their gates finish. Runs that have not
passed their gates stop at the gates.

A pause does not affect plans: "tutti run" also runs on paused nodes.

Another pause of the same target replaces the first. A node can be paused by itself and
by several groups. The node runs again when all its pauses have ended.`,
		Example: `  tutti pause web --reason 'load test' --for 2h
  tutti pause --reason 'network maintenance'`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if in.Reason == "" {
				return tutti.Errorf(tutti.CodeInvalid, "the reason is missing; usage: %s; tutti pause list shows what is paused", cmd.UseLine())
			}
			if cmd.Flags().Changed("for") && in.For <= 0 {
				return tutti.Errorf(tutti.CodeInvalid, "--for %s must be positive; leave the flag out to pause until `tutti unpause`", in.For)
			}
			if len(args) > 0 {
				in.Target = args[0]
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			p, err := server.Pause(cmd.Context(), in)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), p)
			}
			_, err = fmt.Fprintf(cmd.OutOrStdout(), "Nothing begins by itself on %s until %s.\n", targetName(p.Target), until(p))
			return err
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Reason, "reason", "", "reason that is shown to everyone")
	f.DurationVar(&in.For, "for", 0, "how long, like 2h; default: until tutti unpause")
	cmd.AddCommand(newPauseListCommand(o))
	return cmd
}

func newPauseListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List what is paused",
		Example: "  tutti pause list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			pauses, err := server.ListPauses(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), pauses)
			}
			var rows [][]string
			for _, p := range pauses {
				rows = append(rows, []string{targetName(p.Target), p.By, ago(p.At, time.Now()), until(p), p.Reason})
			}
			return table(cmd.OutOrStdout(), "TARGET\tBY\tSINCE\tUNTIL\tREASON", rows)
		},
	}
}

func newUnpauseCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "unpause [TARGET]",
		Short:   "Resume a group, a node or the whole fleet after a pause",
		Example: "  tutti unpause web",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			target := ""
			if len(args) > 0 {
				target = args[0]
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			if err := server.Unpause(cmd.Context(), target); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("The pause of %s has ended.\n", targetName(target)), map[string]any{"target": target, "change": "unpause"})
		},
	}
}

// targetName returns the name of a target for people.
func targetName(target string) string {
	if target == "" {
		return "the fleet"
	}
	return target
}

func until(p api.PauseView) string {
	if p.Until.IsZero() {
		return "it is unpaused"
	}
	return p.Until.Local().Format(time.DateTime)
}
