package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// DeployCode names a reference of a control repository. If Repository is empty, Dir is in a working copy of the repository.
type DeployCode struct {
	Repository, Dir, Ref string
	Environment          string // if it is empty, the branch or tag decides
	Forge                string
	Dirty                bool
}

// Deployable is the code of an environment, ready to be pushed.
type Deployable struct {
	Environment string
	Code        tutti.Digest
	Source      tutti.CodeSource
	Files       int
	Modules     int
	Push        func(ctx context.Context, s Server, c Connection) (tutti.CodePushed, error)
}

func newCodeDeployCommand(o *options) *cobra.Command {
	in, dryRun := DeployCode{Dir: "."}, false
	cmd := &cobra.Command{
		Use:   "deploy [REF]",
		Short: "Push a branch or tag of a control repository with its modules",
		Long: `Reads a commit of a control repository, fetches the modules of its Puppetfile, signs all
of it, and pushes it as an environment. REF is a branch, a tag or a commit. The name of
the environment is that of the branch or tag, with underscores for characters that an
environment cannot have.

Without --repo the repository is the working copy in the present directory, and without
REF the branch that is checked out. Changes that are not committed are refused, unless
--dirty says to deploy them.

The command needs git. It understands the Puppetfile that r10k's documentation shows,
and keeps what it has fetched below ~/.cache/tutti. The file .tutti-modules.json in the
code says which commits and versions the modules are.`,
		Example: `  tutti code deploy
  tutti code deploy --repo https://git.example.net/control.git feature_x
  tutti code deploy v2.1 --environment production --dry-run`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			in.Ref = strings.Join(args, "")
			server, err := o.connect()
			if err != nil {
				return err
			}
			code, err := o.deps.Deploy(cmd.Context(), in)
			if err != nil {
				return err
			}
			ask := api.PushQuery{Codes: map[string]tutti.Digest{code.Environment: code.Code}}
			effect, err := server.PushEffect(cmd.Context(), ask)
			if err != nil {
				return err
			}
			if now, err := server.GetCode(cmd.Context(), api.CodeQuery{Environment: code.Environment}); err == nil && now.Source != nil && !effect.Same {
				if was := now.Source.Ref; was != "" && code.Source.Ref != "" && was != code.Source.Ref {
					fmt.Fprintf(cmd.ErrOrStderr(), "tutti: environment %s has the code of %s until now, and gets that of %s\n",
						code.Environment, tutti.Plain(tutti.InLine(was), maxLine), tutti.Plain(tutti.InLine(code.Source.Ref), maxLine))
				}
			}
			view := map[string]any{
				"environment": code.Environment, "code": code.Code, "source": code.Source, "files": code.Files, "modules": code.Modules,
				"changed": !effect.Same, "effect": effect,
			}
			what := fmt.Sprintf("%s: %s, %s%s", code.Code, count(code.Files, "file"), count(code.Modules, "module"), commitText(&code.Source))
			switch {
			case effect.Same:
				return o.done(cmd, fmt.Sprintf("Environment %s is %s already%s.\n", code.Environment, code.Code, commitText(&code.Source)), view)
			case dryRun:
				return o.done(cmd, fmt.Sprintf("Environment %s would be %s.\n%s", code.Environment, what, pushEffectText(effect)), view)
			}
			if effect, err = o.askPush(cmd, server, ask); err != nil {
				return err
			}
			if _, err := code.Push(cmd.Context(), server, o.conn); err != nil {
				return err
			}
			text := fmt.Sprintf("Environment %s is %s.\n", code.Environment, what)
			if effect.Runs > 0 {
				text += pushEffectText(effect)
			}
			return o.done(cmd, text, view)
		},
	}
	cmd.Flags().StringVar(&in.Repository, "repo", "", "the address of the control repository")
	cmd.Flags().StringVar(&in.Environment, "environment", "", "the environment (default: named as the branch or tag)")
	cmd.Flags().StringVar(&in.Forge, "forge", "", "the address of the forge for modules without git (default: as the Puppetfile says)")
	cmd.Flags().BoolVar(&in.Dirty, "dirty", false, "deploy the working copy with its changes")
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "push nothing: show which nodes need a run")
	o.addYes(cmd)
	return cmd
}
