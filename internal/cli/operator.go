package cli

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// OperatorCreate are the settings for a new operator.
type OperatorCreate struct {
	Name    string
	Out     string // directory for the credentials
	CodeKey bool   // the operator also gets the code-signing key
	Request []byte
}

func newOperatorCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "operator", Short: "Manage operators: their certificates and signing keys"}
	group(cmd, "Certificates", newOperatorListCommand(o), newOperatorCreateCommand(o), newOperatorRequestCommand(o), newOperatorRevokeCommand(o))
	group(cmd, "Signed actions", newOperatorKeyCommand(o), newOperatorTrustCommand(o), newOperatorDistrustCommand(o))
	return cmd
}

func newOperatorListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the operators and when their certificates end",
		Example: "  tutti operator list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			operators, err := server.ListOperators(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), operators)
			}
			var rows [][]string
			for _, v := range operators {
				rows = append(rows, []string{v.Operator, operatorState(v), day(v.Expires), orDash(v.Reason), strconv.Itoa(v.Certificates)})
			}
			return table(cmd.OutOrStdout(), "OPERATOR\tSTATE\tCERTIFICATE ENDS\tREASON\tCERTIFICATES", rows)
		},
	}
}

func operatorState(v api.OperatorView) string {
	switch {
	case !v.Revoked.IsZero() && v.Certificates == 0:
		return "revoked"
	case v.CodeKey:
		return "good, signs code"
	}
	return "good"
}

// The function `day` formats a local date and time at which something ends. If the time is unknown, the
// function returns a dash.
func day(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.Local().Format(time.DateTime)
}

func newOperatorCreateCommand(o *options) *cobra.Command {
	in := OperatorCreate{}
	var request string
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create an operator: issue a certificate for their key",
		Long: `Makes a key here, gets a certificate for the key from the server, and writes both to a
directory. Give the directory to the operator, who names it with --operator or
$TUTTI_OPERATOR. It is better if the operator makes the key, so that it never travels:

    tutti operator request ada --out ~/.config/tutti > ada.csr      # on ada's machine
    tutti operator create ada --request ada.csr --out ada           # here; hand back the files in ada/
                                                                    # to be put into ~/.config/tutti

--code-key adds the key that signs code. Anyone who has this key can run code as root on
every node. A certificate is valid for a year and renews by itself.`,
		Example: `  tutti operator create ada --out ada
  tutti operator create ada --request ada.csr --out ada`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Name = args[0]
			if in.Out == "" {
				in.Out = in.Name
			}
			if request != "" {
				var err error
				if in.Request, err = os.ReadFile(request); err != nil {
					return tutti.Wrap(tutti.CodeInvalid, err, "request")
				}
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			out, err := o.deps.CreateOperator(cmd.Context(), server, o.conn, in)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("Operator %s may connect until %s; the credentials are in %s.\n", in.Name, day(out.Expires), in.Out)
			return o.done(cmd, text, map[string]any{"operator": in.Name, "dir": in.Out, "serial": out.Serial, "expires": out.Expires})
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Out, "out", "", "directory for the credentials (default: NAME)")
	f.BoolVar(&in.CodeKey, "code-key", false, "also give the operator the code-signing key")
	f.StringVar(&request, "request", "", "sign the request in this file instead of making a key")
	return cmd
}

func newOperatorRequestCommand(o *options) *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:     "request NAME",
		Short:   "Make a key here and print a request for its certificate",
		Example: "  tutti operator request ada > ada.csr",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out == "" {
				out = o.conn.OperatorDir
			}
			request, err := o.deps.RequestOperator(args[0], out)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(request)
			return err
		},
	}
	cmd.Flags().StringVar(&out, "out", "", "directory for the key (default: the operator's)")
	return cmd
}

func newOperatorRevokeCommand(o *options) *cobra.Command {
	var in api.RevokeOperator
	cmd := &cobra.Command{
		Use:   "revoke NAME",
		Short: "Revoke an operator's certificates and cancel their jobs",
		Long: `Ends all certificates of an operator at once, and the requests and watches that use them.

Jobs of the operator that have not begun on any node are cancelled. Jobs that have begun
continue, and the command names them. With --cancel-jobs they are cancelled, too: nothing
more begins, and current runs finish. The operator's code-signing key, if any, stays valid.`,
		Example: "  tutti operator revoke ada --reason 'left the team'\n  tutti operator revoke eve --reason stolen --cancel-jobs",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Operator = args[0]
			server, err := o.connect()
			if err != nil {
				return err
			}
			if err := o.confirm(cmd, "revoke operator "+in.Operator); err != nil {
				return err
			}
			out, err := server.RevokeOperator(cmd.Context(), in)
			if err != nil {
				return err
			}
			text := fmt.Sprintf("Operator %s can no longer connect. If they had the code-signing key, its signatures are still valid: tutti rotate code-key\n%s", in.Operator, jobsOfRevoked(out))
			return o.done(cmd, text, map[string]any{"operator": in.Operator, "change": "revoke", "cancelled": out.Cancelled, "go_on": out.GoOn})
		},
	}
	cmd.Flags().StringVar(&in.Reason, "reason", "", "why, for the log")
	cmd.Flags().BoolVar(&in.CancelJobs, "cancel-jobs", false, "cancel also the operator's jobs that have begun: current runs finish")
	cmd.Flags().BoolVar(&in.Last, "last", false, "revoke even if no operator with a certificate is left")
	o.addYes(cmd)
	return cmd
}

// jobsOfRevoked returns a text about a revoked operator's jobs: which jobs were cancelled, and which continue.
func jobsOfRevoked(out api.RevokedOperator) string {
	if out.Cancelled == nil && out.GoOn == nil {
		return "The server is of an earlier release and has not cancelled their jobs. Look at tutti job list, and cancel each with: tutti job cancel JOB\n"
	}
	text := ""
	if len(out.Cancelled) > 0 {
		text = fmt.Sprintf("Cancelled: %s\n", joined(out.Cancelled))
	}
	if len(out.GoOn) > 0 {
		text += fmt.Sprintf("These jobs of the operator continue: %s; to cancel one: tutti job cancel JOB\n", joined(out.GoOn))
	}
	return text
}
