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
	cmd := &cobra.Command{Use: "code", Short: "Push Puppet code and the fleet file, and go back to earlier code"}
	group(cmd, "Change the code of nodes", newCodePushCommand(o), newCodeDeployCommand(o), newCodeReleaseCommand(o), newCodeRollbackCommand(o), newCodeGCCommand(o))
	group(cmd, "Look at code", newCodeListCommand(o), newCodeShowCommand(o), newCodeDiffCommand(o), newCodeCheckCommand(o))
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
	var in pushFlags
	cmd := &cobra.Command{
		Use:   "push",
		Short: "Sign the environment and send it to the server with the fleet file",
		Long: `In a reactive fleet the nodes run with new code by themselves, as
"reaction: code" of the fleet file says. If more nodes than ask_above begin at once, the
push asks first. --dry-run shows which nodes need a run, and what the fleet file
withdraws.

The command sends the code of each environment in the fleet file, and then the fleet
file. --environment sends only the code of one environment. With --path this may be an
environment that the fleet file does not have.

--fleet-only sends the fleet file and leaves the code as it is. This works without a
code-signing key. If there is such a key, it signs the fleet file.

If the server already has the code, the command does not sign it again. Use --again if
the server was restored from a backup after nodes had begun later code. With --again, the
command signs the code again with a higher counter.`,
		Example: `  tutti code push --dry-run
  tutti code push --environment canary --path ../canary
  tutti code push --fleet-only`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			what, err := in.what()
			if err != nil {
				return err
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			p, err := o.readPush(in, what)
			if err != nil {
				return err
			}
			if in.dryRun {
				return o.showPushEffect(cmd, server, p)
			}
			pushed, effect, err := o.push(cmd, server, p, what)
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), pushed)
			}
			switch {
			case in.fleetOnly:
				fmt.Fprintln(cmd.OutOrStdout(), "The server has the fleet file. The code did not change.")
			case pushed.Code == "" && len(pushed.Others) == 0:
				fmt.Fprintln(cmd.OutOrStdout(), "The server has the fleet file. It has no environment, because the code is on the Puppet Server.")
			}
			for _, code := range append([]tutti.CodePushed{pushed.CodePushed}, pushed.Others...) {
				if code.Code != "" {
					fmt.Fprintf(cmd.OutOrStdout(), "Environment %s is %s: %d files, %d bytes.\n", code.Environment, code.Code, code.Files, code.Bytes)
				}
			}
			if effect.Runs > 0 {
				fmt.Fprint(cmd.OutOrStdout(), pushEffectText(effect))
			}
			return nil
		},
	}
	fileFlag(cmd, &in.file)
	cmd.Flags().StringVar(&in.environment, "environment", "", "send only the code of this environment")
	cmd.Flags().StringVar(&in.path, "path", "", "the directory of this code, if the fleet file does not name it")
	cmd.Flags().BoolVar(&in.dryRun, "dry-run", false, "change nothing: show which nodes need a run, and what the fleet file withdraws")
	cmd.Flags().BoolVar(&in.fleetOnly, "fleet-only", false, "send only the fleet file")
	cmd.Flags().BoolVar(&in.again, "again", false, "sign the code again with a higher counter, even if the server has it")
	o.addYes(cmd)
	return cmd
}

// pushFlags are the flags of a push.
type pushFlags struct {
	file, environment, path  string
	dryRun, fleetOnly, again bool
}

// The method `what` returns which parts are sent, and refuses flags that contradict each other.
func (in pushFlags) what() (pushWhat, error) {
	switch {
	case in.fleetOnly && in.again:
		return pushAll, tutti.Errorf(tutti.CodeInvalid, "--again signs the code, but --fleet-only does not touch it: give only one of them")
	case in.fleetOnly && in.environment != "":
		return pushAll, tutti.Errorf(tutti.CodeInvalid, "--environment sends only code, but --fleet-only does not touch it: give only one of them")
	case in.path != "" && in.environment == "":
		return pushAll, tutti.Errorf(tutti.CodeInvalid, "--path is the directory of one environment: name it with --environment NAME")
	case in.fleetOnly:
		return pushFleet, nil
	case in.again:
		return pushAgain, nil
	}
	return pushAll, nil
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
	source api.FleetSource // empty if only code is sent
	codes  []pushableCode  // the code of the fleet's environment is first; empty if the Puppet Server has all code
}

// The type `pushableCode` is the code of one environment.
type pushableCode struct {
	tutti.Environment // Path is the directory
	digest            tutti.Digest
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

func (o *options) readPush(in pushFlags, what pushWhat) (pushable, error) {
	if in.path != "" {
		code, err := o.readCode(tutti.Environment{Name: in.environment, Path: in.path}, "")
		return pushable{codes: []pushableCode{code}}, err
	}
	f, source, err := readFleet(in.file)
	out := pushable{fleet: f, source: api.FleetSource{File: in.file, Source: source}}
	if err != nil || what == pushFleet {
		return out, err
	}
	declared := f.Declared()
	if in.environment != "" {
		declared = slices.DeleteFunc(slices.Clone(declared), func(e tutti.Environment) bool { return e.Name != in.environment })
		if len(declared) == 0 {
			return out, tutti.Errorf(tutti.CodeInvalid, "%s has no environment %q: name the directory of its code with --path DIR", in.file, in.environment)
		}
		out.fleet, out.source = tutti.Fleet{}, api.FleetSource{}
	}
	for _, environment := range declared {
		code, err := o.readCode(environment, filepath.Dir(in.file))
		if err != nil {
			return out, err
		}
		out.codes = append(out.codes, code)
	}
	return out, nil
}

// readCode reads the code of an environment. A relative path begins at the directory `from`.
func (o *options) readCode(environment tutti.Environment, from string) (pushableCode, error) {
	out := pushableCode{Environment: environment}
	out.Path = inDir(out.Path, from)
	var err error
	out.digest, err = o.deps.CodeDigest(out.Path, out.Name)
	return out, err
}

func (p pushable) ask() api.PushQuery {
	out := api.PushQuery{Codes: map[string]tutti.Digest{}, Fleet: p.source}
	for _, code := range p.codes {
		out.Codes[code.Name] = code.digest
	}
	return out
}

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

// Pushed is what a push has sent: the code of the fleet's environment, and the code of the other environments.
type Pushed struct {
	tutti.CodePushed
	Others []tutti.CodePushed `json:"others,omitempty"`
}

// The method `push` sends code and fleet file. If many nodes would begin to run, the method first asks a
// person. The method sends the code first and the fleet file last. So the server always has the code that a
// plan needs.
func (o *options) push(cmd *cobra.Command, server Server, p pushable, what pushWhat) (Pushed, api.PushEffect, error) {
	var pushed Pushed
	effect, err := o.askPush(cmd, server, p.ask())
	if err != nil || effect.Same && what == pushChanged {
		return pushed, effect, err
	}
	var reaction *tutti.CodeReaction // nil: the server's fleet file decides
	if len(p.source.Source) > 0 {
		reaction = &tutti.CodeReaction{}
		if p.fleet.Reaction != nil {
			reaction = &p.fleet.Reaction.Code
		}
	}
	for _, code := range p.codes {
		in := PushCode{Dir: code.Path, Environment: code.Name, Reaction: reaction, Again: what == pushAgain}
		sent, err := o.deps.Push(cmd.Context(), server, o.conn, in)
		switch {
		case err != nil:
			return pushed, effect, err
		case code.Name == p.fleet.Environment.Name:
			pushed.CodePushed = sent
		default:
			pushed.Others = append(pushed.Others, sent)
		}
	}
	if len(p.source.Source) == 0 {
		return pushed, effect, nil
	}
	if p.source.Statement, err = o.deps.SignFleet(cmd.Context(), server, o.conn, p.source.Source); err != nil {
		return pushed, effect, err
	}
	_, err = server.SetFleet(cmd.Context(), p.source)
	return pushed, effect, err
}
