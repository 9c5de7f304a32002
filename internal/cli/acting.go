package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// TrustOperator names an operator who shall sign actions. If Remove is set, the operator shall no longer sign
// actions.
type TrustOperator struct {
	Name   string
	Key    string // public, in PEM
	Remove bool
}

// OperatorsTrusted are the operators who may sign actions now.
type OperatorsTrusted struct {
	Operators []string `json:"operators"`
	// This list is compared with the last list that the operator's directory has stored. Added are the operators who
	// are new, and Left are the operators who are gone. Each text contains the digest of the operator's key.
	Added []string `json:"added,omitempty"`
	Left  []string `json:"left,omitempty"`
	Note  string   `json:"note,omitempty"` // a problem that the command found with the last list
}

func newOperatorKeyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key with which this operator signs actions",
		Long: `Prints the public key with which this operator signs changes on nodes, such as
"tutti puppet disable". If the operator's directory has no such key, the command makes
one. Nodes accept the key after somebody with the code-signing key has added it:

    tutti operator key > ada.pem                # on ada's machine
    tutti operator trust ada --key ada.pem      # where the code-signing key is`,
		Example: "  tutti operator key > ada.pem",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key, err := o.deps.OperatorsKey(o.conn.OperatorDir)
			if err != nil {
				return err
			}
			return o.done(cmd, key.Key, map[string]any{"operator": key.Operator, "key": key.Key})
		},
	}
}

func newOperatorTrustCommand(o *options) *cobra.Command {
	var file string
	cmd := &cobra.Command{
		Use:   "trust [NAME]",
		Short: "Trust an operator's key, so that nodes accept their signed changes",
		Long: `Signs the list of operators who may enable and disable Puppet on nodes. The list is
signed with the code-signing key. Without NAME the command adds the operator who runs it.

Once a node has such a list, it enables and disables Puppet only if an operator of the
list has signed the request. The node refuses all others: operators who are not on the
list, root on the server, and a server that an attacker has taken over.`,
		Example: `  tutti operator trust
  tutti operator trust ada --key ada.pem`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, err := o.deps.OperatorsKey(o.conn.OperatorDir)
			if err != nil {
				return err
			}
			in := TrustOperator{Name: own.Operator, Key: own.Key}
			if name := strings.Join(args, ""); name != "" && name != own.Operator {
				if file == "" {
					return tutti.Errorf(tutti.CodeInvalid, "the key of %s is missing; give it with --key FILE (`tutti operator key` on their machine prints it)", name)
				}
				in = TrustOperator{Name: name}
			}
			if file != "" {
				text, err := os.ReadFile(file)
				if err != nil {
					return tutti.Wrap(tutti.CodeInvalid, err, "key")
				}
				in.Key = string(text)
			}
			return o.trustOperator(cmd, in)
		},
	}
	cmd.Flags().StringVar(&file, "key", "", "the file with the operator's public key (default: your own key)")
	return cmd
}

func newOperatorDistrustCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "distrust NAME",
		Short:   "Remove an operator's key, so that nodes refuse their changes",
		Example: "  tutti operator distrust ada",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return o.trustOperator(cmd, TrustOperator{Name: args[0], Remove: true})
		},
	}
}

func (o *options) trustOperator(cmd *cobra.Command, in TrustOperator) error {
	server, err := o.connect()
	if err != nil {
		return err
	}
	out, err := o.deps.TrustOperator(cmd.Context(), server, o.conn, in)
	if err != nil {
		return err
	}
	if out.Note != "" {
		fmt.Fprintln(cmd.ErrOrStderr(), tutti.Plain(out.Note, maxLine))
	}
	for _, who := range out.Added {
		fmt.Fprintln(cmd.ErrOrStderr(), "added: "+tutti.Plain(who, maxLine))
	}
	for _, who := range out.Left {
		fmt.Fprintln(cmd.ErrOrStderr(), "gone:  "+tutti.Plain(who, maxLine))
	}
	text := "No operator signs actions now, so nodes refuse to enable or disable Puppet.\n"
	if len(out.Operators) > 0 {
		text = fmt.Sprintf("These operators sign changes on nodes: %s. Connected nodes get the list within half a minute.\n", strings.Join(out.Operators, ", "))
	}
	return o.done(cmd, text, map[string]any{"operators": out.Operators, "added": out.Added, "left": out.Left})
}
