package cli

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
)

func newCodeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "code", Short: "Push, show and release Puppet code and the fleet file"}
	cmd.AddCommand(newCodePushCommand(o), newCodeShowCommand(o), newCodeReleaseCommand(o))
	return cmd
}

// PushCode names an environment that shall be signed and sent to the server.
type PushCode struct {
	Dir         string
	Environment string
	Reaction    *tutti.CodeReaction // from the fleet file that is pushed with the code
	Again       bool                // sign the code again with a higher counter, even if the server has this code
}

func newCodePushCommand(o *options) *cobra.Command {
	var file string
	var dryRun, fleetOnly, again bool
	what := pushAll
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Sign the environment and send it to the server with the fleet file",
		Long: `In a reactive fleet the nodes run with new code by themselves, as
"reaction: code" of the fleet file says. If more nodes than ask_above begin at once, the
push asks first. --dry-run shows which nodes need a run, and what the fleet file
withdraws.

--fleet-only sends the fleet file and leaves the code as it is. This works without a
code-signing key. If there is such a key, it signs the fleet file.

If the server already has the code, the command does not sign it again. Use --again if
the server was restored from a backup after nodes had begun later code. With --again, the
command signs the code again with a higher counter.`,
		Example: `  tutti code push --dry-run
  tutti code push -f tutti.yaml
  tutti code push --fleet-only`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			switch {
			case fleetOnly && again:
				return tutti.Errorf(tutti.CodeInvalid, "--again signs the code, but --fleet-only does not touch it: give only one of them")
			case fleetOnly:
				what = pushFleet
			case again:
				what = pushAgain
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			if dryRun {
				code, err := o.readPush(file, what)
				if err != nil {
					return err
				}
				return o.showPushEffect(cmd, server, code)
			}
			pushed, effect, err := o.push(cmd, server, file, what)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), pushed)
			}
			switch {
			case fleetOnly:
				fmt.Fprintln(cmd.OutOrStdout(), "The server has the fleet file. The code did not change.")
			case pushed.Code == "":
				fmt.Fprintln(cmd.OutOrStdout(), "The server has the fleet file. It has no environment, because the code is on the Puppet Server.")
			default:
				fmt.Fprintf(cmd.OutOrStdout(), "Environment %s is %s: %d files, %d bytes.\n", pushed.Environment, pushed.Code, pushed.Files, pushed.Bytes)
			}
			if effect.Runs > 0 {
				fmt.Fprint(cmd.OutOrStdout(), pushEffectText(effect))
			}
			return nil
		},
	}
	fileFlag(cmd, &file)
	cmd.Flags().BoolVar(&dryRun, "dry-run", false, "change nothing: show which nodes need a run, and what the fleet file withdraws")
	cmd.Flags().BoolVar(&fleetOnly, "fleet-only", false, "send only the fleet file")
	cmd.Flags().BoolVar(&again, "again", false, "sign the code again with a higher counter, even if the server has it")
	o.addYes(cmd)
	return cmd
}

func newCodeReleaseCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:   "release [ENVIRONMENT]",
		Short: "Release held code, so that nodes run with it by themselves",
		Long: `Code is held if the fleet file says "reaction: {code: confirm}" or
"reaction: {code: {canary: N}}". After the release, nodes run with this code by
themselves.`,
		Example: `  tutti code release
  tutti code release production`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			released, err := server.ReleaseCode(cmd.Context(), strings.Join(args, ""))
			if err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("Nodes run with %.19s of environment %s now.\n", released.Code, released.Environment), map[string]any{"environment": released.Environment, "code": released.Code})
		},
	}
}

// If pushed code is held, heldText returns a text that says until when nodes wait.
func heldText(b tutti.CodePushed) string {
	switch {
	case !b.Held:
		return ""
	case b.Canary > 0:
		return fmt.Sprintf(", held for %d canaries", b.Canary)
	}
	return ", held until it is released"
}

// pushEffectText returns a text about the effect of a push.
func pushEffectText(e api.PushEffect) string {
	if e.Runs == 0 {
		return "No node needs a run: nodes have this code, and nothing is withdrawn.\n"
	}
	text := fmt.Sprintf("%s: %s; %s.\n", needText(e.Runs), someNodes(e.Nodes, e.Runs), beginText(e))
	for _, w := range e.Withdrawn {
		text += "  " + withdrawalText(w) + "\n"
	}
	return text
}

func needText(runs int) string {
	if runs == 1 {
		return "1 node needs a run"
	}
	return fmt.Sprintf("%d nodes need a run", runs)
}

// beginText returns a text about when nodes run after a push.
func beginText(e api.PushEffect) string {
	switch {
	case !e.Reactive:
		return "they run with the next `tutti converge`"
	case e.Reaction.Confirm:
		return "they run after `tutti code release`"
	case e.Reaction.Canary > 0 && e.Begins() < e.Runs:
		return fmt.Sprintf("%d of them run first, the others run when these are good", e.Begins())
	}
	return "they run by themselves now"
}

// withdrawalText returns a text about the data that a node loses because no grant covers the data any more.
func withdrawalText(w tutti.Withdrawal) string {
	what := slices.Clone(w.Values)
	if w.Exports > 0 {
		what = append(what, fmt.Sprintf("%d exported resources of %s", w.Exports, strings.Join(w.Types, ", ")))
	}
	return fmt.Sprintf("withdrawn, no grant covers it: %s of %s", strings.Join(what, ", "), w.Node)
}

func fileFlag(cmd *cobra.Command, file *string) {
	cmd.Flags().StringVarP(file, "file", "f", defaultFleetFile, "the fleet file")
}

// readFleet reads a fleet file and checks it.
func readFleet(file string) (tutti.Fleet, []byte, error) {
	source, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return tutti.Fleet{}, nil, tutti.Errorf(tutti.CodeInvalid, "there is no fleet file %s here; go to its directory, or name it with --file FILE", file)
	}
	if err != nil {
		return tutti.Fleet{}, nil, tutti.Wrap(tutti.CodeInvalid, err, "fleet file")
	}
	f, err := fleet.Parse(file, source)
	return f, source, err
}

// The type `pushable` contains all data that a push may send.
type pushable struct {
	fleet  tutti.Fleet
	source api.FleetSource
	dir    string       // directory of the environment. dir is empty if the Puppet Server has the code
	code   tutti.Digest // digest of the code in dir
}

// pushWhat says which parts of a pushable are sent to the server.
type pushWhat int

const (
	// everything, even parts that the server has, because the server may have lost files
	pushAll     pushWhat = iota
	pushChanged          // nothing if the server has this code and this fleet file
	pushFleet            // only the fleet file
	pushAgain            // everything; the code is signed with a higher counter than the server has
)

func (o *options) readPush(file string, what pushWhat) (pushable, error) {
	f, source, err := readFleet(file)
	out := pushable{fleet: f, source: api.FleetSource{File: file, Source: source}}
	if err != nil || f.Environment.Name == "" || what == pushFleet {
		return out, err
	}
	out.dir = f.Environment.Path
	if !filepath.IsAbs(out.dir) {
		out.dir = filepath.Join(filepath.Dir(file), out.dir)
	}
	out.code, err = o.deps.CodeDigest(out.dir, f.Environment.Name)
	return out, err
}

func (p pushable) ask() api.PushQuery { return api.PushQuery{Code: p.code, Fleet: p.source} }

func (o *options) showPushEffect(cmd *cobra.Command, server Server, p pushable) error {
	e, err := server.PushEffect(cmd.Context(), p.ask())
	if err != nil {
		return err
	}
	if o.json {
		return printJSON(cmd.OutOrStdout(), e)
	}
	_, err = fmt.Fprint(cmd.OutOrStdout(), pushEffectText(e))
	return err
}

// The method `push` sends code and fleet file. If many nodes would begin to run, the method first asks a
// person. The method sends the code first and the fleet file last. So the server always has the code that a
// plan needs.
func (o *options) push(cmd *cobra.Command, server Server, file string, what pushWhat) (tutti.CodePushed, api.PushEffect, error) {
	var pushed tutti.CodePushed
	p, err := o.readPush(file, what)
	if err != nil {
		return pushed, api.PushEffect{}, err
	}
	effect, err := server.PushEffect(cmd.Context(), p.ask())
	if err != nil {
		return pushed, effect, err
	}
	if effect.Same && what == pushChanged {
		return tutti.CodePushed{Code: p.code}, effect, nil
	}
	if begins := effect.Begins(); begins > effect.AskAbove {
		if err := o.confirm(cmd, fmt.Sprintf("push: %d nodes begin to run by themselves", begins)); err != nil {
			return pushed, effect, err
		}
	}
	if p.dir != "" {
		reaction := &tutti.CodeReaction{}
		if p.fleet.Reaction != nil {
			reaction = &p.fleet.Reaction.Code
		}
		in := PushCode{Dir: p.dir, Environment: p.fleet.Environment.Name, Reaction: reaction, Again: what == pushAgain}
		if pushed, err = o.deps.Push(cmd.Context(), server, o.conn, in); err != nil {
			return pushed, effect, err
		}
	}
	if p.source.Statement, err = o.deps.SignFleet(cmd.Context(), server, o.conn, p.source.Source); err != nil {
		return pushed, effect, err
	}
	_, err = server.SetFleet(cmd.Context(), p.source)
	return pushed, effect, err
}
