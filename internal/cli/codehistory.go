package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newCodeListCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "list [ENVIRONMENT]",
		Short: "List the codes of environments, the latest push first",
		Long: `Lists the last ten codes of each environment: who pushed each code, how many nodes
had it in their last run, and the commit it was made of. The state "current" is the
code that nodes run with. The code with the state "held" waits for its release, and the
nodes run with the code with the state "released" meanwhile.`,
		Example: `  tutti code list
  tutti code list canary`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			codes, err := server.ListCode(cmd.Context(), api.CodeQuery{Environment: strings.Join(args, "")})
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), codes)
			}
			return printCodes(cmd.OutOrStdout(), codes, time.Now())
		},
	}
}

func printCodes(w io.Writer, codes []api.CodeEntry, now time.Time) error {
	var rows [][]string
	for _, c := range codes {
		author := ""
		if c.Source != nil {
			author = tutti.InLine(c.Source.Author)
		}
		rows = append(rows, []string{
			c.Environment, shortCode(c.Code), orDash(string(c.State)), ago(c.At, now), orDash(c.By), strconv.Itoa(c.Files), strconv.Itoa(c.Nodes),
			orDash(tutti.InLine(c.Source.Short())), orDash(author),
		})
	}
	return table(w, "ENVIRONMENT\tCODE\tSTATE\tPUSHED\tBY\tFILES\tNODES\tCOMMIT\tAUTHOR", rows)
}

// shortCode returns the first digits of the digest of a code. They are enough to name the code in a command.
func shortCode(code tutti.Digest) string { return fmt.Sprintf("%.12s", code.Hex()) }

// commitText returns the commit that code was made of, with a comma before it.
func commitText(source *tutti.CodeSource) string {
	if source.Short() == "" {
		return ""
	}
	return ", commit " + source.Short()
}

// RollbackTo names the code of an environment.
type RollbackTo struct {
	Environment string
	Code        tutti.Digest
}

func newCodeRollbackCommand(o *options) *cobra.Command {
	var to string
	cmd := &cobra.Command{
		Use:   "rollback [ENVIRONMENT]",
		Short: "Push an earlier code of an environment again",
		Long: `Signs an earlier code again, with a higher counter, and makes it the latest code.
Without --to this is the code before the present one. If the present code is held, it is
the code that nodes run with. The server still has the files, so no directory is needed.
The server says which code was the earlier one, so the command asks first.

Nodes treat this as a push: "reaction: code" of the fleet file says how they react.`,
		Example: `  tutti code rollback
  tutti code rollback canary --to 9b21f0 --yes`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			kept, err := server.GetCode(cmd.Context(), api.CodeQuery{Environment: strings.Join(args, ""), Code: to, Before: to == ""})
			if err != nil {
				return err
			}
			effect, err := server.PushEffect(cmd.Context(), api.PushQuery{Codes: map[string]tutti.Digest{kept.Environment: kept.Code}})
			if err != nil {
				return err
			}
			what := fmt.Sprintf("push again for environment %s: %s; %s, %d of them by themselves now",
				kept.Environment, codeVersionText(kept.CodeVersion, time.Now()), needText(effect.Runs), effect.Begins())
			if err := o.confirm(cmd, what); err != nil {
				return err
			}
			pushed, err := o.deps.Rollback(cmd.Context(), server, o.conn, RollbackTo{kept.Environment, kept.Code})
			if err != nil {
				return err
			}
			text := fmt.Sprintf("Environment %s is %s again%s.\n", pushed.Environment, pushed.Code, commitText(kept.Source))
			if effect.Runs > 0 {
				text += pushEffectText(effect)
			}
			return o.done(cmd, text, map[string]any{"environment": pushed.Environment, "code": pushed.Code})
		},
	}
	cmd.Flags().StringVar(&to, "to", "", "the code, as in tutti code list")
	o.addYes(cmd)
	return cmd
}

// askPush asks a person if a push would make many nodes run by themselves.
func (o *options) askPush(cmd *cobra.Command, server Server, in api.PushQuery) (api.PushEffect, error) {
	effect, err := server.PushEffect(cmd.Context(), in)
	if err != nil {
		return effect, err
	}
	if begins := effect.Begins(); begins > effect.AskAbove {
		return effect, o.confirm(cmd, fmt.Sprintf("push: %d nodes begin to run by themselves", begins))
	}
	return effect, nil
}

func newCodeGCCommand(o *options) *cobra.Command {
	in := api.RetireCode{}
	cmd := &cobra.Command{
		Use:   "gc [ENVIRONMENT]",
		Short: "Remove earlier codes, or a whole environment",
		Long: `Lets the server forget all but the last codes of each environment. The server
always keeps the code that nodes run with and the code of jobs that it still knows. The
files are removed with the server's next sweeps, when the log does not name them any
more.

--remove removes an environment, for example of a branch that is merged. The command
refuses to remove an environment that the fleet file names.`,
		Example: `  tutti code gc --keep 3
  tutti code gc feature_x --remove`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Environment = strings.Join(args, "")
			if in.Remove && in.Environment == "" {
				return tutti.Errorf(tutti.CodeInvalid, "--remove needs the name of the environment: tutti code gc ENVIRONMENT --remove")
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			codes, err := server.ListCode(cmd.Context(), api.CodeQuery{Environment: in.Environment})
			if err != nil {
				return err
			}
			if in.Remove && !in.DryRun {
				if err := o.confirm(cmd, "remove the environment "+in.Environment); err != nil {
					return err
				}
			}
			retired, text := []tutti.CodeRetired{}, ""
			for i, c := range codes {
				if i > 0 && codes[i-1].Environment == c.Environment {
					continue
				}
				in.Environment = c.Environment
				out, err := server.RetireCode(cmd.Context(), in)
				if err != nil {
					return err
				}
				if len(out.Codes) > 0 {
					retired = append(retired, out)
					text += retiredText(out, in.DryRun)
				}
			}
			if text == "" {
				text = "Nothing to remove.\n"
			}
			return o.done(cmd, text, map[string]any{"retired": retired})
		},
	}
	cmd.Flags().IntVar(&in.Keep, "keep", 10, "how many codes of each environment stay, 1 to 10")
	cmd.Flags().BoolVar(&in.Remove, "remove", false, "remove the whole environment")
	cmd.Flags().BoolVar(&in.DryRun, "dry-run", false, "change nothing: show what would be removed")
	o.addYes(cmd)
	return cmd
}

func retiredText(r tutti.CodeRetired, dry bool) string {
	what := fmt.Sprintf("%s of environment %s", count(len(r.Codes), "earlier code"), r.Environment)
	if r.Gone {
		what = fmt.Sprintf("environment %s with %s", r.Environment, count(len(r.Codes), "code"))
	}
	if dry {
		return "Would remove " + what + ".\n"
	}
	return "Removed " + what + ".\n"
}
