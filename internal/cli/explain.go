package cli

import (
	"context"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newExplainCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain",
		Short: "Explain why a node, a value or a resource is as it is",
		Long: `Every run records what it read and what it published. From these records and the log,
the commands say who changed what, when, in which job and run.`,
	}
	cmd.AddCommand(
		newExplanationCommand(o, "node NODE", "Explain why a node is good, stale, suspect, waiting or failed", "web-01", 1,
			func(ctx context.Context, s Server, args []string) (api.NodeExplanation, error) {
				return s.ExplainNode(ctx, tutti.NodeName(args[0]))
			}, printNodeExplanation),
		newExplanationCommand(o, "value KEY", "Explain where a value comes from, its history, and who reads it", "shared/app/version", 1,
			func(ctx context.Context, s Server, args []string) (api.ValueExplanation, error) {
				return s.ExplainValue(ctx, args[0])
			}, printValueExplanation),
		newExplanationCommand(o, "resource NODE 'TYPE[TITLE]'", "Explain what the last run did to a resource, and what that run read", "web-01 'Service[nginx]'", 2,
			func(ctx context.Context, s Server, args []string) (api.ResourceExplanation, error) {
				return s.ExplainResource(ctx, api.ExplainResource{Node: tutti.NodeName(args[0]), Resource: args[1]})
			}, printResourceExplanation),
	)
	return cmd
}

// newExplanationCommand returns a command that requests an explanation and prints
// it.
func newExplanationCommand[Out any](
	o *options, use, summary, example string, args int,
	ask func(context.Context, Server, []string) (Out, error), show func(io.Writer, Out, time.Time),
) *cobra.Command {
	return &cobra.Command{
		Use:     use,
		Short:   summary,
		Example: "  tutti explain " + strings.Fields(use)[0] + " " + example,
		Args:    cobra.ExactArgs(args),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			out, err := ask(cmd.Context(), server, args)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), out)
			}
			show(cmd.OutOrStdout(), out, time.Now())
			return nil
		},
	}
}
