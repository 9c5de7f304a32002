package cli

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newTokenCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "token", Short: "Manage the tokens with which machines join"}
	cmd.AddCommand(newTokenCreateCommand(o), newTokenListCommand(o), newTokenRevokeCommand(o))
	return cmd
}

func newTokenListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list",
		Short:   "List the tokens with which machines can still join",
		Example: "  tutti token list",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			tokens, err := server.ListTokens(cmd.Context())
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), tokens)
			}
			var rows [][]string
			for _, t := range tokens {
				rows = append(rows, []string{string(t.Token), t.Name, orDash(joined(t.Groups)), fmt.Sprintf("%d of %d", t.Used, max(1, t.Uses)), day(t.Expires)})
			}
			return table(cmd.OutOrStdout(), "TOKEN\tFOR\tGROUPS\tUSED\tENDS", rows)
		},
	}
}

func newTokenRevokeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:     "revoke TOKEN",
		Short:   "End a token: no more machines join with it",
		Example: "  tutti token revoke TOKEN",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			if err := o.confirm(cmd, "revoke token "+args[0]); err != nil {
				return err
			}
			if err := server.RevokeToken(cmd.Context(), tutti.TokenID(args[0])); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("Token %s is no longer valid.\n", args[0]), map[string]any{"token": args[0], "change": "revoke"})
		},
	}
	o.addYes(cmd)
	return cmd
}

func newTokenCreateCommand(o *options) *cobra.Command {
	var in api.CreateToken
	var groups []string
	cmd := &cobra.Command{
		Use:   "create --name PATTERN",
		Short: "Create a token with which machines can join",
		Long: `Prints a join token. The first machine that joins with the token, under a name
that matches PATTERN, uses it up. Hand the token to that machine on standard input:

    tutti token create --name web-01 | ssh web-01 tutti join

With --uses several machines join with the same token, for example the machines of an
autoscaling group. Each of them has its own name that matches PATTERN. A machine that
is removed later does not give its use back. "tutti token revoke" ends the token.`,
		Example: `  tutti token create --name web-01 --group web
  tutti token create --name 'web-*' --ttl 10m
  tutti token create --name 'web-*' --uses 50 --ttl 24h --group web`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if in.Name == "" {
				return tutti.Errorf(tutti.CodeInvalid, "the node's name is missing; usage: %s", cmd.UseLine())
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			for _, g := range groups {
				in.Groups = append(in.Groups, tutti.GroupName(g))
			}
			out, err := server.CreateToken(cmd.Context(), in)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), out)
			}
			fmt.Fprintln(cmd.OutOrStdout(), out.Text)
			who := "One machine"
			if in.Uses > 1 {
				who = count(in.Uses, "machine")
			}
			fmt.Fprintf(cmd.ErrOrStderr(), "%s may join as %s until %s.\n", who, in.Name, out.Expires.Local().Format(time.DateTime))
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&in.Name, "name", "", "the node's name, or a pattern with *")
	f.StringSliceVar(&groups, "group", nil, "a group of the node, fixed by the token (repeatable)")
	f.IntVar(&in.Uses, "uses", 1, "how many machines may join with the token")
	f.DurationVar(&in.TTL, "ttl", time.Hour, "how long the token is valid")
	return cmd
}
