package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newGrantsCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "grants", Short: "Find out which grants the fleet's code needs"}
	cmd.AddCommand(newGrantsSuggestCommand(o))
	return cmd
}

func newGrantsSuggestCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "suggest [JOB]",
		Short: "Print the grants that runs lacked, as lines of the fleet file",
		Long: `Prints, as lines of the fleet file, the grants that the nodes' code needs
and does not have. The command takes the grants from the runs of the last "tutti
converge --noop", or of another job. A noop changes nothing on a node.

To find the grants of a new fleet, repeat until nothing is printed:

    tutti converge --noop
    tutti grants suggest      # read the lines, and paste them into the fleet file
    tutti code push

If the fleet file was written for a release before 0.3.0, the command also prints what
its grants allow today and will not allow after the next push.

Read each line before you paste it. With "dangerous: true", the nodes of the group can
become root on every node that collects what they export.`,
		Example: `  tutti converge --noop
  tutti grants suggest`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			got, err := server.SuggestGrants(cmd.Context(), tutti.JobID(strings.Join(args, "")))
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), got)
			}
			if got.Job == "" && !got.Old {
				return tutti.Errorf(tutti.CodeNotFound, "no noop converge has ended yet, so the missing grants are unknown; run: tutti converge --noop")
			}
			printSuggested(cmd.OutOrStdout(), got)
			return nil
		},
	}
}

// printSuggested prints grants in the syntax of a fleet file, with notes as
// comments.
func printSuggested(w io.Writer, got api.SuggestedGrants) {
	var of []string
	if got.Job != "" {
		of = append(of, fmt.Sprintf("job %s of %s", got.Job, got.At.Local().Format(time.DateTime)))
	}
	if got.Old {
		of = append(of, "what nodes export by grants from before 0.3.0")
	}
	if len(got.Grants) == 0 {
		fmt.Fprintf(w, "# No grant is missing, by %s.\n", strings.Join(of, ", and "))
	} else {
		fmt.Fprintf(w, "# By %s. Read each line before you paste it.\ngrants:\n", strings.Join(of, ", and "))
	}
	for _, g := range got.Grants {
		if g.To == "" {
			fmt.Fprintf(w, "  # in no group: %s; make one, and name it here\n", someNodes(g.Nodes, len(g.Nodes)))
			g.To = "GROUP"
		} else {
			fmt.Fprintf(w, "  # for %s\n", someNodes(g.Nodes, len(g.Nodes)))
		}
		if len(g.Also) > 0 {
			fmt.Fprintf(w, "  # these nodes get this grant, too: %s\n", someNodes(g.Also, len(g.Also)))
		}
		if g.Dangerous {
			fmt.Fprintln(w, "  # dangerous: these nodes can become root on each node that collects or reads this")
		}
		for _, t := range g.Types {
			if g.Dangerous && !t.Native() && !strings.Contains(t.Type, "::") {
				fmt.Fprintf(w, "  # if your Puppet code defines %s: {type: %s, defined: true}, without dangerous\n", t.Type, t.Type)
			}
		}
		fmt.Fprintf(w, "  - %s\n", g.Grant)
	}
	if len(got.Failed) > 0 {
		fmt.Fprintf(w, "# These nodes failed before their gates, and may need more grants: %s\n", someNodes(got.Failed, len(got.Failed)))
	}
}

// One line names at most maxNodes nodes.
const maxNodes = 8

// someNodes returns the first few names of nodes, and how many nodes are left out.
func someNodes(nodes []tutti.NodeName, all int) string {
	var names []string
	for _, n := range nodes[:min(len(nodes), maxNodes)] {
		names = append(names, string(n))
	}
	if more := all - len(names); more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}
