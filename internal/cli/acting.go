package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

// TrustOperator is an operator who is to sign actions, or no more.
type TrustOperator struct {
	Name   string
	Key    string // public, in PEM
	Remove bool
}

// OperatorsTrusted are the operators who sign actions now.
type OperatorsTrusted struct {
	Operators []string `json:"operators"`
	// Added and Left are how the list differs from the last one that the directory knew, with the digests of the keys.
	Added []string `json:"added,omitempty"`
	Left  []string `json:"left,omitempty"`
	Note  string   `json:"note,omitempty"` // what is not as it should be
}

func newOperatorKeyCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print the public key by which this operator signs actions",
		Long: `Prints the public key by which this operator signs what nodes are to change, as
"tutti puppet disable" does. The key is made in the operator's directory if there is
none. Nodes take it when somebody with the code-signing key says so:

    tutti operator key > ada.pem                # on ada's machine
    tutti operator trust ada --key ada.pem      # where the code-signing key is`,
		Args: cobra.NoArgs,
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
		Short: "Let an operator sign what nodes are to change",
		Long: `Signs, with the code-signing key, the list of operators whose word lets nodes enable
and disable Puppet. Without NAME it adds the operator who asks. From the first such
list on, nodes enable and disable nothing that no operator of the list has signed for
them: not for other operators, not for root on the server, and not for a server that
was taken over.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			own, err := o.deps.OperatorsKey(o.conn.OperatorDir)
			if err != nil {
				return err
			}
			in := TrustOperator{Name: own.Operator, Key: own.Key}
			if name := strings.Join(args, ""); name != "" && name != own.Operator {
				if file == "" {
					return tutti.Errorf(tutti.CodeInvalid, "which key has %s? give --key FILE, with what `tutti operator key` prints there", name)
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
	cmd.Flags().StringVar(&file, "key", "", "the file with the operator's public key (default: the own one)")
	return cmd
}

func newOperatorDistrustCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "distrust NAME",
		Short: "Let an operator sign nothing more that nodes are to change",
		Args:  cobra.ExactArgs(1),
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
	text := "Nobody signs actions: nodes enable and disable Puppet for nobody.\n"
	if len(out.Operators) > 0 {
		text = fmt.Sprintf("These operators sign what nodes are to change: %s. Nodes that are connected know it within half a minute.\n", strings.Join(out.Operators, ", "))
	}
	return o.done(cmd, text, map[string]any{"operators": out.Operators, "added": out.Added, "left": out.Left})
}
