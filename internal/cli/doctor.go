package cli

import (
	"context"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
)

// Examine names the directories of server, agent and operator on this machine.
type Examine struct {
	ServerDir, AgentDir string
	Root                string // directory under which doctor looks for Puppet
	Connection          Connection
}

// Finding is a problem on this machine, now or in the near future.
type Finding struct {
	Check string `json:"check"`
	What  string `json:"what"`
	Means string `json:"means"`
	Mend  string `json:"mend"`
	Hint  bool   `json:"hint,omitempty"` // nothing is wrong, but the administrator could improve something
}

func newDoctorCommand(o *options) *cobra.Command {
	var in Examine
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Diagnose this machine, and say how to repair it",
		Long: `Checks the server, the node and the operator that live on this machine.
The command skips parts that this machine does not have, and changes nothing.

Exit code:
   0  all is well, perhaps with hints
   1  there are findings`,
		Example: `  tutti doctor
  tutti doctor --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in.Connection = o.conn
			found := o.deps.Doctor(cmd.Context(), in)
			if err := o.printFindings(cmd.OutOrStdout(), found); err != nil {
				return err
			}
			if wrong(found) {
				return CommandExit(ExitFailed)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.ServerDir, "server-dir", DefaultServerDir, "data directory of a server here")
	f.StringVar(&in.AgentDir, "agent-dir", DefaultAgentDir, "state directory of an agent here")
	rootFlag(f, &in.Root)
	return cmd
}

// Doctor examines this machine.
type Doctor func(ctx context.Context, o Examine) []Finding

func (o *options) printFindings(w io.Writer, found []Finding) error {
	if o.json {
		if found == nil {
			found = []Finding{}
		}
		return printJSON(w, found)
	}
	if !wrong(found) {
		if _, err := fmt.Fprintln(w, "All is well."); err != nil {
			return err
		}
	}
	return writeFindings(w, found)
}

// writeFindings prints findings for people.
func writeFindings(w io.Writer, found []Finding) error {
	for _, f := range found {
		title, mend := f.Check, "mend "
		if f.Hint {
			title, mend = f.Check+" (a hint)", "helps"
		}
		if _, err := fmt.Fprintf(w, "%s\n  found  %s\n  means  %s\n  %s  %s\n", title, f.What, f.Means, mend, f.Mend); err != nil {
			return err
		}
	}
	return nil
}

// The function `wrong` reports whether one of the findings is more than a hint.
func wrong(found []Finding) bool {
	return slices.ContainsFunc(found, func(f Finding) bool { return !f.Hint })
}
