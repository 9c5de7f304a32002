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

func newNodeCausesCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "causes",
		Short: "Show why nodes are not good: each reason once, with its nodes",
		Long: `Nodes that are not good for the same reason are one line: the same changed value,
the same pushed code, the same failure, the same missing answer. The line says who made
the change and when. "tutti explain node NODE" explains one node.`,
		Example: "  tutti node causes\n  tutti node causes --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			causes, err := server.NodeCauses(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), causes)
			}
			printCauses(cmd.OutOrStdout(), causes, time.Now())
			return nil
		},
	}
}

// printCauses prints one tree for each state.
func printCauses(out io.Writer, causes []api.NodeCause, now time.Time) {
	if len(causes) == 0 {
		fmt.Fprintln(out, "No node needs anything.")
		return
	}
	var state *outline
	for i, c := range causes {
		if i == 0 || c.State != causes[i-1].State {
			if state != nil {
				state.print(out)
			}
			state = newOutline("%s", c.State)
		}
		cause := state.add("%s: %s", count(c.Nodes, "node"), tutti.OneLine(c.Text))
		if change := changedBy(c, now); change != "" {
			cause.add("%s", change)
		} else if !c.Since.IsZero() {
			cause.add("since %s (%s)", stamp(c.Since), ago(c.Since, now))
		}
		cause.add("%s", nameSome(c))
		if c.Next != "" {
			cause.add("%s", tutti.OneLine(c.Next))
		}
	}
	state.print(out)
}

// changedBy names the event that is the cause, if it is known.
func changedBy(c api.NodeCause, now time.Time) string {
	if c.By == "" || c.At.IsZero() {
		return ""
	}
	what := "changed by " + c.By
	switch {
	case c.Kind == api.CauseCode:
		what = "pushed by " + c.By
	case c.From != "" && c.Key == "":
		what = "changed by " + string(c.From)
	}
	return fmt.Sprintf("%s at %s (%s)", what, stamp(c.At), ago(c.At, now))
}

// nameSome names some nodes of a cause.
func nameSome(c api.NodeCause) string {
	names := make([]string, len(c.Some))
	for i, n := range c.Some {
		names[i] = string(n)
	}
	text := strings.Join(names, ", ")
	if more := c.Nodes - len(c.Some); more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}
