package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// RotateCodeKey selects a step of a rotation of the code-signing key.
type RotateCodeKey struct {
	Status bool // change nothing
	Finish bool // finish the rotation, so that only the new key signs
	Leave  []tutti.NodeName
	// Confirm asks the operator whether the new key may sign the code and the lists that are in use. If
	// Confirm is nil, the new key may sign them.
	Confirm func(what []string) error
}

// CodeKeyRotation is the progress of a rotation of the code-signing key.
type CodeKeyRotation struct {
	// keys that sign now. Keys is empty if the fleet's first key still signs
	Keys     []tutti.Digest `json:"keys,omitempty"`
	GoesOn   bool           `json:"goes_on"`  // two keys sign
	Finished bool           `json:"finished"` // this command has finished the rotation
	There    int            `json:"there"`    // number of nodes that trust these keys
	Missing  []NotThere     `json:"missing"`  // the nodes that do not trust these keys yet
	// NotVerified is the reason why this directory cannot verify the keys that the server reports. If
	// NotVerified is empty, the keys are verified.
	NotVerified string `json:"not_verified,omitempty"`
}

// NotThere is a node that does not trust the present keys yet, with the reason.
type NotThere struct {
	Node tutti.NodeName `json:"node"`
	Why  string         `json:"why"`
}

func newRotateCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "rotate", Short: "Rotate the fleet's keys while nodes and operators work"}
	cmd.AddCommand(newRotateCACommand(o), newRotateCodeKeyCommand(o))
	return cmd
}

func newRotateCodeKeyCommand(o *options) *cobra.Command {
	var in RotateCodeKey
	var leave []string
	cmd := &cobra.Command{
		Use:   "code-key",
		Short: "Replace the key that signs code, on all nodes",
		Long: `Makes a new code-signing key in the operator's directory. Nodes then trust both keys,
because the old key has signed the new one. The new key also signs the code that is
in use. When all nodes trust both, --finish lets them trust only the new key. Then give
code.key to the operators who had the old one.

Before the new key signs the code in use, the command names all of it and asks.
Otherwise code that was pushed by a thief of the old key would stay valid. If the
command names code that is not yours, push your own code to that environment first. If
the command names a list of operators that is not yours, sign the list again (tutti
operator trust, distrust). Then repeat the command.

You can stop and repeat the command at any point. The command finds out which steps are
done. --status says which nodes do not trust the new key yet, and changes nothing. The
command compares the keys with the operator's directory, or says that it cannot.
--finish refuses as long as a node does not trust the new key. To finish without a node,
name the node with --leave. A node that you leave trusts the old key until it is back.
After that the node trusts the new key. If a node's agent is too old, upgrade the agent.`,
		Example: `  tutti rotate code-key
  tutti rotate code-key --status
  tutti rotate code-key --finish --leave db-03`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, n := range leave {
				in.Leave = append(in.Leave, tutti.NodeName(n))
			}
			switch {
			case in.Status && in.Finish:
				return tutti.Errorf(tutti.CodeInvalid, "--status changes nothing, but --finish does: give only one of them")
			case len(in.Leave) > 0 && !in.Finish:
				return tutti.Errorf(tutti.CodeInvalid, "--leave names nodes that --finish does not wait for: give both")
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			if len(in.Leave) > 0 {
				if err := o.confirm(cmd, fmt.Sprintf("do not wait for %s: they trust the old key until they are back", strings.Join(leave, ", "))); err != nil {
					return err
				}
			}
			in.Confirm = func(what []string) error {
				fmt.Fprintln(cmd.ErrOrStderr(), "The old key has signed the following. It stays valid if the new key signs it too:")
				for _, line := range what {
					fmt.Fprintln(cmd.ErrOrStderr(), "  "+tutti.Plain(line, maxLine))
				}
				return o.confirm(cmd, "sign all of it with the new key")
			}
			out, err := o.deps.RotateCodeKey(cmd.Context(), server, o.conn, in)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), out)
			}
			printRotation(cmd.OutOrStdout(), out, o.conn.OperatorDir)
			return nil
		},
	}
	f := cmd.Flags()
	f.BoolVar(&in.Status, "status", false, "change nothing: show which nodes do not trust the new key yet")
	f.BoolVar(&in.Finish, "finish", false, "trust only the new key")
	f.StringSliceVar(&leave, "leave", nil, "with --finish: do not wait for these nodes")
	o.addYes(cmd)
	return cmd
}

func printRotation(w io.Writer, r CodeKeyRotation, dir string) {
	switch {
	case r.Finished:
		fmt.Fprintf(w, "Only the new key signs now: %s. Hand %s/code.key to the operators who had the old one.\n", keyNames(r.Keys), dir)
	case r.GoesOn:
		fmt.Fprintf(w, "Two keys sign code: %s.\n", keyNames(r.Keys))
	case len(r.Keys) > 0:
		fmt.Fprintf(w, "There is no rotation; %s signs code.\n", keyNames(r.Keys))
	default:
		fmt.Fprintln(w, "There is no rotation; the first key of the fleet signs code.")
	}
	if len(r.Keys) == 0 {
		return
	}
	if r.NotVerified != "" {
		fmt.Fprintf(w, "Not verified, only the server names these keys: %s.\n", tutti.Plain(r.NotVerified, maxLine))
	}
	fmt.Fprintf(w, "%s of %d trust these keys.\n", count(r.There, "node"), r.There+len(r.Missing))
	for _, n := range r.Missing {
		fmt.Fprintf(w, "  %s: %s\n", n.Node, n.Why)
	}
	switch {
	case r.GoesOn && len(r.Missing) > 0:
		fmt.Fprintln(w, "When all nodes trust these keys: tutti rotate code-key --finish")
	case r.GoesOn:
		fmt.Fprintln(w, "Finish it with: tutti rotate code-key --finish")
	}
}
