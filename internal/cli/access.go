package cli

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fold"
)

func newAccessCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "access", Short: "Explain which operators may do what"}
	cmd.AddCommand(newAccessExplainCommand(o))
	return cmd
}

func newAccessExplainCommand(o *options) *cobra.Command {
	var in api.AccessQuery
	var plan string
	cmd := &cobra.Command{
		Use:   "explain OPERATOR VERB [TARGET]",
		Short: "Explain whether an operator may do something, and which line decides",
		Long: `Looks in the access section of the fleet file that the server has. Names
the line that allows the action, or the line that is missing.

The verbs: ` + verbList() + `.
TARGET is a group or a node for run and puppet, and a key for data. Without TARGET
the command asks for all nodes, or for any key.

Exit code:
   0  the operator may do it
   3  the operator may not do it`,
		Example: `  tutti access explain ada run web-01 --plan deploy
  tutti access explain ada data shared/app/version`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Operator, in.Verb, in.Plan = args[0], tutti.Verb(args[1]), tutti.PlanName(plan)
			if len(args) == 3 {
				in.Target = args[2]
			}
			if err := in.Validate(); err != nil {
				return err
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			answer, err := server.ExplainAccess(cmd.Context(), in)
			if err != nil {
				return err
			}
			if o.json {
				err = printJSON(cmd.OutOrStdout(), answer)
			} else {
				word := "no"
				if answer.May {
					word = "yes"
				}
				_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", word, answer.Why)
			}
			if err == nil && !answer.May {
				return CommandExit(ExitRefused)
			}
			return err
		},
	}
	cmd.Flags().StringVar(&plan, "plan", "", "for run: the plan, or \"converge\" or \"puppet\" for the command of that name")
	cmd.Flags().BoolVar(&in.Noop, "noop", false, "for run: ask for runs with --noop")
	return cmd
}

func verbList() string {
	words := make([]string, len(tutti.Verbs))
	for i, v := range tutti.Verbs {
		words[i] = string(v)
	}
	return strings.Join(words, ", ")
}

func newAuditWhoCouldCommand(o *options) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "who-could VERB [TARGET]",
		Short: "List who could do something at a given time, and which line allowed it",
		Long: `Lists the operators who had a valid certificate and the verb at that
time. The command reads the audit trail, and names the lines of the fleet file of that
time.

The verbs: ` + verbList() + `.
TARGET is a key for data, and a node for all other verbs. Without TARGET the command
lists everyone who had the verb for anything at all. Root on the server could always
do everything and is not listed.`,
		Example: `  tutti audit who-could run
  tutti audit who-could data shared/app/version --at 36h`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			verb, target := tutti.Verb(args[0]), ""
			if len(args) == 2 {
				target = args[1]
			}
			if err := (api.AccessQuery{Operator: "x", Verb: verb}).Validate(); err != nil {
				return err
			}
			when := time.Now()
			if at != "" {
				var err error
				if when, err = parseSince("--at", at, when); err != nil {
					return err
				}
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			var rights fold.Rights
			err = server.ReadAudit(cmd.Context(), api.ReadAudit{Acts: true}, func(e api.AuditEntry) error {
				event, err := tutti.ViewEvent(e.Raw)
				if err == nil && !event.At.After(when) {
					rights.Apply(event)
				}
				return tutti.Wrap("", err, "audit entry %d", e.Seq)
			})
			if err != nil {
				return err
			}
			could, err := rights.Could(verb, target, when)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), append([]fold.Right{}, could...))
			}
			var rows [][]string
			for _, r := range could {
				by := "the fleet file had no access section: every operator could do everything"
				if len(r.By) > 0 {
					lines := make([]string, len(r.By))
					for i, a := range r.By {
						lines[i] = a.String()
					}
					by = strings.Join(lines, ", ")
				}
				rows = append(rows, []string{r.Operator, day(r.Ends), by})
			}
			return table(cmd.OutOrStdout(), "OPERATOR\tCERTIFICATE ENDS\tBY", rows)
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "the time: 2026-07-01, 2026-07-01T12:00:00Z, or how long ago (36h); default: now")
	return cmd
}
