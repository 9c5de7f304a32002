package cli

import (
	"fmt"

	"github.com/spf13/cobra"
)

// PolicyFinding is a line in a node's policy that does not have the effect that a
// reader expects.
type PolicyFinding struct {
	Line int    `json:"line"`
	What string `json:"what"`
	Open bool   `json:"fails_open,omitempty"` // the policy allows something that a reader believes to be denied
}

func newPolicyCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "policy", Short: "Check who may ask a node's Puppet for what"}
	cmd.AddCommand(&cobra.Command{
		Use:   "check FILE",
		Short: "Find rules of a node's policy that never match or that fail open",
		Long: `Reads a policy as an agent would. The policy's groups of callers are in
FILE.groups. The command needs no server. The command reports two kinds of rules:

  - Rules that can never match. They have commas instead of spaces, have unknown words,
    or come after a rule that already matches everything that they match.
  - Rules that fail open.

A rule has four or five columns, separated by tabs:
  allow|deny  CALLERS  ACTIONS  FACTS  [CLASSES]
The first rule of which all columns match decides. If none matches, the line "policy
default" decides. Without that line the policy denies the action. In conditions "not"
binds tighter than "and", and "and" tighter than "or".

Without the file, a node allows operators the actions status, last_run_summary, facts,
enable, disable and runonce. It denies resource.

Exit code:
   0  nothing found
   1  findings
   2  FILE is not a policy that an agent understands: the agent denies everything`,
		Example: "  tutti policy check /etc/tutti/policy",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			found, err := o.deps.CheckPolicy(args[0])
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), append([]PolicyFinding{}, found...))
			}
			for _, f := range found {
				if o.json {
					break
				}
				open := ""
				if f.Open {
					open = "fails open: "
				}
				fmt.Fprintf(cmd.OutOrStdout(), "%s:%d: %s%s\n", args[0], f.Line, open, f.What)
			}
			if err == nil && len(found) > 0 {
				return CommandExit(ExitFailed)
			}
			return err
		},
	})
	return cmd
}
