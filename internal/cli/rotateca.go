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

func newRotateCACommand(o *options) *cobra.Command {
	var status, toNew, finish, abandon, last bool
	var leave, leaveOperators []string
	cmd := &cobra.Command{
		Use:   "ca",
		Short: "Rotate the fleet's CA and the keys of its bus, step by step",
		Long: `Replaces the fleet's CA, the server's certificate, and the keys of its
bus, while nodes and operators work. Use this command after somebody stole a backup of
the server, and before the CA's certificate expires. You can rotate as often as you
like. Give the steps in this order:

    tutti rotate ca              makes the new keys; nodes and operators learn both
    tutti rotate ca --status     shows who does not know the new keys yet
    tutti rotate ca --switch     uses the new keys; nodes and operators renew as they connect
    tutti rotate ca --finish     ends the old keys

You can repeat each step. After a crash, the same command continues the step. A node
that is away gets the new keys when it comes back, at any time before --finish.

--finish refuses while a node or an operator has credentials of the old keys only. Name
those that you want to leave behind with --leave or --leave-operator. Such a node joins
again afterwards (tutti join --again). Create such an operator again (tutti operator
create). If no operator with the verb admin would be left, --finish also needs --last.

--abandon goes back to the old keys. After --switch, repeat --abandon when nodes and
operators have gone back to the old keys.

The command does not touch the key that signs code. If somebody else controls the server
itself, they have the new keys too. In that case make a new fleet.`,
		Example: `  tutti rotate ca
  tutti rotate ca --status
  tutti rotate ca --finish --leave web-07`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			in := api.RotateCA{Step: tutti.RotationBegin, LeaveOperators: leaveOperators, Last: last}
			for _, name := range leave {
				in.Leave = append(in.Leave, tutti.NodeName(name))
			}
			said := 0
			for step, is := range map[tutti.RotationStep]bool{tutti.RotationSwitch: toNew, tutti.RotationFinish: finish, tutti.RotationAbandon: abandon, "": status} {
				if is {
					in.Step = step
					said++
				}
			}
			if said > 1 {
				return tutti.Errorf(tutti.CodeInvalid, "give only one of --status, --switch, --finish and --abandon")
			}
			if len(leave)+len(leaveOperators) > 0 && !finish && !abandon {
				return tutti.Errorf(tutti.CodeInvalid, "--leave and --leave-operator need --finish or --abandon")
			}
			if last && !finish && !abandon {
				return tutti.Errorf(tutti.CodeInvalid, "--last needs --finish or --abandon")
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			if status {
				out, err := server.ShowCARotation(cmd.Context())
				if err != nil {
					return err
				}
				return o.showRotation(cmd, out)
			}
			if finish || abandon {
				if err := o.confirm(cmd, string(in.Step)+" the rotation of the CA"); err != nil {
					return err
				}
			}
			out, err := server.RotateCA(cmd.Context(), in)
			if err != nil {
				return err
			}
			return o.showRotation(cmd, out)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&status, "status", false, "show the progress, and who does not have the new keys; change nothing")
	f.BoolVar(&toNew, "switch", false, "issue credentials with the new keys")
	f.BoolVar(&finish, "finish", false, "end the old keys")
	f.BoolVar(&abandon, "abandon", false, "go back to the old keys")
	f.StringSliceVar(&leave, "leave", nil, "a node that may be locked out (repeatable)")
	f.BoolVar(&last, "last", false, "even if afterwards only root on the server can connect as admin")
	f.StringSliceVar(&leaveOperators, "leave-operator", nil, "an operator who may be locked out (repeatable)")
	o.addYes(cmd)
	return cmd
}

func (o *options) showRotation(cmd *cobra.Command, r api.CARotation) error {
	if o.json {
		return printJSON(cmd.OutOrStdout(), r)
	}
	return writeRotation(cmd.OutOrStdout(), r)
}

// writeRotation prints the progress of a rotation and the next step. writeRotation also prints
// the nodes and operators that do not have the new keys yet.
func writeRotation(w io.Writer, r api.CARotation) error {
	var rows [][]string
	for _, b := range r.Behind {
		who, seen := "node "+string(b.Node), orDash("")
		if b.Operator != "" {
			who = "operator " + b.Operator
		}
		if !b.SeenAt.IsZero() {
			seen = day(b.SeenAt)
		}
		rows = append(rows, []string{who, seen, b.Why})
	}
	if _, err := io.WriteString(w, rotationText(r)); err != nil || len(rows) == 0 {
		return err
	}
	fmt.Fprintln(w)
	return table(w, "NOT THERE YET\tLAST HEARD OF\tWHY", rows)
}

func rotationText(r api.CARotation) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	since := r.Since.Local().Format(time.DateTime)
	switch r.Phase {
	case "":
		say("The CA was never rotated: %.19s. To begin: tutti rotate ca", r.CA)
	case tutti.RotationBegun:
		say("Two CAs are trusted since %s: %.19s issues credentials, %.19s is new.", since, r.CA, r.Next)
		say("Next: tutti rotate ca --switch (or --abandon). You need not wait for any node.")
	case tutti.RotationSwitched:
		say("Credentials come from the new keys since %s: %.19s is new, %.19s will be removed.", since, r.Next, r.CA)
		say("Next: %s", finishHint(r))
	case tutti.RotationReturning:
		say("Credentials come from the old keys again since %s: %.19s stays, %.19s will be removed.", since, r.CA, r.Next)
		say("When all nodes and operators have gone back: tutti rotate ca --abandon")
	case tutti.RotationFinished:
		say("The rotation was finished at %s: %.19s is the CA.", since, r.CA)
		say("Make a backup: earlier backups have keys that are no longer valid.")
	case tutti.RotationAbandoned:
		say("The rotation was abandoned at %s: %.19s is the CA.", since, r.CA)
	default:
		say("The rotation is %q since %s.", string(r.Phase), since)
	}
	for _, n := range r.Left {
		say("Node %s was left behind. Let the node join again: tutti token create --name %s | ssh %s tutti join --again", n, n, n)
	}
	for _, name := range r.LeftOperators {
		say("Operator %s was left behind. Let the operator in again: tutti operator create %s", name, name)
	}
	return b.String()
}

func finishHint(r api.CARotation) string {
	if len(r.Behind) == 0 {
		return "tutti rotate ca --finish (or --abandon). All nodes and operators have the new keys."
	}
	return "wait for the nodes and operators below, or name each one: tutti rotate ca --finish --leave NODE"
}

// rotatedText returns the text for the audit trail about the progress of a rotation.
func rotatedText(b *tutti.CARotated) string {
	words := map[tutti.RotationPhase]string{
		tutti.RotationBegun: "began to rotate the CA", tutti.RotationSwitched: "let the new CA issue credentials", tutti.RotationReturning: "let the old CA issue credentials again",
		tutti.RotationFinished: "ended the old CA", tutti.RotationAbandoned: "gave up the new CA",
	}
	text := fmt.Sprintf("%s: %.19s to %.19s", words[b.Phase], b.From.CA, b.To.CA)
	var left []string
	for _, n := range b.Left {
		left = append(left, "node "+string(n))
	}
	for _, name := range b.LeftOperators {
		left = append(left, "operator "+name)
	}
	if len(left) > 0 {
		text += ", and left behind " + strings.Join(left, ", ")
	}
	return text
}
