package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

func newPlanCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "plan", Short: "Show the plans of a fleet file"}
	cmd.AddCommand(newPlanListCommand(o), newPlanShowCommand(o))
	return cmd
}

func newPlanListCommand(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the plans",
		Example: "  tutti plan list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f, _, err := readFleet(file)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), f.Plans)
			}
			var rows [][]string
			for _, p := range f.Plans {
				rows = append(rows, []string{string(p.Name), fmt.Sprint(len(p.Steps))})
			}
			return table(cmd.OutOrStdout(), "PLAN\tSTEPS", rows)
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

func newPlanShowCommand(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:     "show [PLAN]",
		Short:   "Show the steps of a plan, what each waits for and where it runs",
		Example: "  tutti plan show deploy",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			f, _, err := readFleet(file)
			if err != nil {
				return err
			}
			plans, err := choosePlans(f, args)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), plans)
			}
			for _, p := range plans {
				targets, err := fleet.Resolve(f, nil, p)
				if err != nil {
					targets = nil // some groups are known only to the server, so do not show targets
				}
				fmt.Fprint(cmd.OutOrStdout(), fleet.Render(p, targets))
			}
			return nil
		},
	}
	fileFlag(cmd, &file)
	return cmd
}

func choosePlans(f tutti.Fleet, args []string) ([]tutti.Plan, error) {
	if len(args) == 0 {
		return f.Plans, nil
	}
	var names []string
	for _, p := range f.Plans {
		if string(p.Name) == args[0] {
			return []tutti.Plan{p}, nil
		}
		names = append(names, string(p.Name))
	}
	return nil, tutti.Errorf(tutti.CodeNotFound, "the fleet file has no plan %q; it has: %s", args[0], strings.Join(names, ", "))
}
