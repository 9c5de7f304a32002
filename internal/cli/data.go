package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
)

func newDataCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "data",
		Short: "Read and write the values that runs share",
		Long: `Values have keys like path/like/this. Hiera on every node finds key K at
shared/hiera/K, and at node/NAME/hiera/K on that node.`,
	}
	cmd.AddCommand(newDataListCommand(o), newDataGetCommand(o), newDataSetCommand(o), newDataUnsetCommand(o))
	return cmd
}

func newDataListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "list [PREFIX]",
		Short:   "List values and who set them",
		Example: "  tutti data list shared/app",
		Args:    cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			prefix := ""
			if len(args) > 0 {
				prefix = args[0]
			}
			values, err := server.ListValues(cmd.Context(), prefix)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), values)
			}
			var rows [][]string
			for _, v := range values {
				rows = append(rows, []string{v.Key, string(v.Value), v.By, ago(v.At, time.Now()), orDash(string(v.Job))})
			}
			return table(cmd.OutOrStdout(), "KEY\tVALUE\tBY\tSET\tJOB", rows)
		},
	}
}

func newDataGetCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "get KEY",
		Short:   "Print a value as JSON",
		Example: "  tutti data get shared/app/version",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			values, err := server.ListValues(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			for _, v := range values {
				if v.Key != args[0] {
					continue
				}
				if o.json {
					return printJSON(cmd.OutOrStdout(), v)
				}
				fmt.Fprintln(cmd.OutOrStdout(), string(v.Value))
				return nil
			}
			return tutti.Errorf(tutti.CodeNotFound, "no value %q; see: tutti data list", args[0])
		},
	}
}

func newDataSetCommand(o *options) *cobra.Command {
	var asString, dryRun, secret bool
	var targets []string
	cmd := &cobra.Command{
		Use:   "set KEY [VALUE]",
		Short: "Set a value: JSON, from the argument or from standard input",
		Long: `Takes the value as JSON, from the argument or from standard input. In a
reactive fleet this starts a run on every node that reads the value. If more nodes than
the fleet file's ask_above would run, the command asks first. --dry-run shows which nodes
would run, and when.

Every operator who may read data, and every node with the grant, can read the value. For
a password use --secret.

With --secret the value comes from standard input only. The command seals the value to
the nodes that --for names, before the value leaves this machine. See: tutti secret
--help`,
		Example: `  tutti data set shared/app/version 1.2 --string
  tutti data set shared/app/ports < ports.json
  tutti data set --secret shared/app/token --for group:web --string < token`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			switch {
			case secret && (len(args) > 1 || dryRun):
				return tutti.Errorf(tutti.CodeInvalid, "--secret reads the value from standard input, because others can see arguments; it cannot be combined with --dry-run")
			case secret:
				return o.setSecret(cmd, server, args[0], targets, asString)
			case len(targets) > 0:
				return tutti.Errorf(tutti.CodeInvalid, "--for needs --secret")
			}
			raw, err := valueOf(cmd.InOrStdin(), args, asString)
			if err != nil {
				return err
			}
			if dryRun {
				return o.showEffect(cmd, server, args[0], raw)
			}
			effect, err := o.effect(cmd, server, args[0], raw)
			if err != nil {
				return err
			}
			if wide(effect) {
				if err := o.confirm(cmd, "set "+args[0]+": "+effectLine(effect)); err != nil {
					return err
				}
			}
			if err := server.SetValue(cmd.Context(), args[0], raw); err != nil {
				return err
			}
			return o.done(cmd, "", map[string]any{"key": args[0], "value": raw})
		},
	}
	cmd.Flags().BoolVar(&asString, "string", false, "VALUE is a string, not JSON")
	cmd.Flags().BoolVar(&secret, "secret", false, "seal the value; it comes from standard input")
	addFor(cmd, &targets, "with --secret: who can open it")
	addDryRun(cmd, &dryRun)
	o.addYes(cmd)
	return cmd
}

const maxValueInput = 1 << 20

func valueOf(stdin io.Reader, args []string, asString bool) (json.RawMessage, error) {
	var text []byte
	if len(args) > 1 {
		text = []byte(args[1])
	} else {
		var err error
		if text, err = io.ReadAll(io.LimitReader(stdin, maxValueInput)); err != nil {
			return nil, err
		}
	}
	if asString {
		return json.Marshal(string(text))
	}
	if !json.Valid(text) {
		return nil, tutti.Errorf(tutti.CodeInvalid, "value %q is not JSON; a string needs quotes, or --string", string(text))
	}
	return text, nil
}

func newDataUnsetCommand(o *options) *cobra.Command {
	var dryRun bool
	cmd := &cobra.Command{
		Use:     "unset KEY",
		Short:   "Remove a value",
		Example: "  tutti data unset shared/app/version --dry-run",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			if dryRun {
				return o.showEffect(cmd, server, args[0], nil)
			}
			effect, err := o.effect(cmd, server, args[0], nil)
			if err != nil {
				return err
			}
			what := "unset " + args[0]
			if wide(effect) {
				what += ": " + effectLine(effect)
			}
			if err := o.confirm(cmd, what); err != nil {
				return err
			}
			if err := server.UnsetValue(cmd.Context(), args[0]); err != nil {
				return err
			}
			return o.done(cmd, "", map[string]any{"key": args[0]})
		},
	}
	addDryRun(cmd, &dryRun)
	o.addYes(cmd)
	return cmd
}
