package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
)

func newCodeCheckCommand(o *options) *cobra.Command {
	var in pushFlags
	var modules []string
	var node string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the code before a push, with the Puppet of a machine",
		Long: `Checks the syntax of manifests, templates, functions, hiera data and metadata. The
command also reports modules that a metadata.json needs and that are not there, and
classes and resource types that nothing defines. It compiles nothing and sends nothing.

Errors make the command exit with 2. A warning may be meant: a module names a class of
another module that is not there. The command needs puppet-agent or openvox-agent on
this machine.

With --node the code goes to a node, and the node's Puppet checks it. The node also
compiles the code up to the gate, with its own facts, answers and secrets, as for "tutti
diff". It applies nothing. You need the verbs run and code, and a code key.`,
		Example: `  tutti code check
  tutti code check --modules /usr/share/puppet/modules
  tutti code check --node web-01 --path ../canary`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if wait <= 0 || wait > tutti.MaxCompileFor/2 {
				return tutti.Errorf(tutti.CodeInvalid, "--wait %s: more than 0s and at most %s", wait, tutti.MaxCompileFor/2)
			}
			if node != "" && len(modules) > 0 {
				return tutti.Errorf(tutti.CodeInvalid, "--modules names directories of this machine: a node has its own modules, so leave it out beside --node")
			}
			var dirs []string
			environment := in.environment
			if in.path != "" {
				dirs = []string{in.path}
			} else {
				f, _, err := readFleet(in.file)
				if err != nil {
					return err
				}
				for _, e := range f.Declared() {
					if in.environment == "" || in.environment == e.Name {
						dirs = append(dirs, inDir(e.Path, filepath.Dir(in.file)))
						environment = e.Name
					}
				}
				if len(dirs) == 0 {
					return tutti.Errorf(tutti.CodeInvalid, "%s names no directory of this code: name it with --path DIR", in.file)
				}
			}
			check := func(dir string) ([]tutti.CodeProblem, error) { return o.deps.CheckCode(cmd.Context(), dir, modules) }
			if node != "" {
				if len(dirs) > 1 {
					return tutti.Errorf(tutti.CodeInvalid, "a node has one environment, and %s has %d: name it with --environment", in.file, len(dirs))
				}
				d := &diffRun{options: o, on: `node == ` + strconv.Quote(node), environment: environment, wait: wait, names: []tutti.NodeName{tutti.NodeName(node)}}
				check = func(dir string) ([]tutti.CodeProblem, error) { return d.check(cmd, dir) }
			}
			problems, errors := []tutti.CodeProblem{}, 0
			for _, dir := range dirs {
				found, err := check(dir)
				if err != nil {
					return err
				}
				for _, p := range found {
					if p.File != "" {
						p.File = filepath.Join(dir, p.File)
					}
					problems = append(problems, p)
					if p.Level == tutti.ProblemError {
						errors++
					}
				}
			}
			if o.json {
				if err := printJSON(cmd.OutOrStdout(), map[string]any{"problems": problems, "errors": errors}); err != nil {
					return err
				}
			} else {
				printProblems(cmd.OutOrStdout(), problems)
			}
			if errors > 0 {
				return tutti.Errorf(tutti.CodeInvalid, "%s in the code", count(errors, "error"))
			}
			if !o.json {
				fmt.Fprintf(cmd.OutOrStdout(), "No errors, %s.\n", count(len(problems), "warning"))
			}
			return nil
		},
	}
	fileFlag(cmd, &in.file)
	cmd.Flags().StringVar(&in.environment, "environment", "", "check only this environment of the fleet file")
	cmd.Flags().StringVar(&in.path, "path", "", "check this directory")
	cmd.Flags().StringSliceVar(&modules, "modules", nil, "directories of modules that the nodes have besides the code")
	cmd.Flags().StringVar(&node, "node", "", "let this node check and compile the code")
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Minute, "how long to wait for the node")
	return cmd
}

// The method `check` lets the node compile the code in a directory, and then asks the node what is wrong with the code. If
// nothing is wrong and the node did not compile the code, this is the only problem.
func (d *diffRun) check(cmd *cobra.Command, dir string) ([]tutti.CodeProblem, error) {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), d.wait, tutti.Errorf(tutti.CodeDeadline, "%s had not checked the code within --wait %s", d.names[0], d.wait))
	defer cancel()
	if err := d.begin(ctx); err != nil {
		return nil, err
	}
	if _, err := d.checked(ctx, nil); err != nil {
		return nil, err
	}
	side, err := d.deps.DiffCode(ctx, d.server, d.conn, DiffCode{dir, d.environment, d.wait + time.Hour})
	if err != nil {
		return nil, err
	}
	d.not = map[tutti.NodeName]string{}
	job, err := d.compile(ctx, cmd, side)
	if err != nil {
		return nil, err
	}
	name := d.names[0]
	if why := d.not[name]; why != "" {
		return nil, tutti.Errorf(tutti.CodeConflict, "%s does not compile this code: %s", name, why)
	}
	found, err := d.checked(ctx, []tutti.JobID{job.ID})
	if err != nil {
		return nil, err
	}
	out := found.Problems
	slices.SortStableFunc(out, func(a, b tutti.CodeProblem) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	if found.Left > 0 {
		out = append(out, tutti.CodeProblem{Level: tutti.ProblemError, Message: count(found.Left, "more problem")})
	}
	hasError := func(p tutti.CodeProblem) bool { return p.Level == tutti.ProblemError }
	if r := lastRun(job, name); (r == nil || !converge.Compiled(r)) && !slices.ContainsFunc(out, hasError) {
		out = append(out, tutti.CodeProblem{Level: tutti.ProblemError, Message: string(name) + " did not compile it: " + whyBroken(r, name, d.environment)})
	}
	return out, nil
}

// The method `checked` asks the node about the code of a job. Without a job, it asks whether the node can check code.
func (d *diffRun) checked(ctx context.Context, jobs []tutti.JobID) (tutti.CodeChecked, error) {
	var out *tutti.CodeChecked
	wait := tutti.MaxRemoteWait
	if len(jobs) == 0 {
		wait = tutti.DefaultRemoteWait
	}
	why := "it did not answer"
	err := d.server.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteCheck, On: d.on, Wait: wait, Jobs: jobs}, func(all []api.NodeAnswer) error {
		for _, a := range all {
			switch {
			case a.Verdict != tutti.RemoteOK:
				why = strings.TrimSuffix(string(a.Verdict)+": "+a.Message, ": ")
			case a.Check != nil:
				out = a.Check
			default:
				out = &tutti.CodeChecked{}
			}
		}
		return nil
	})
	if err != nil {
		return tutti.CodeChecked{}, err
	}
	if out == nil {
		return tutti.CodeChecked{}, tutti.Errorf(tutti.CodeConflict, "%s cannot check code: %s", d.names[0], why)
	}
	return *out, nil
}

func printProblems(w io.Writer, problems []tutti.CodeProblem) {
	for _, p := range problems {
		if p.File == "" {
			printLine(w, "%s: %s\n", p.Level, tutti.InLine(tutti.Plain(p.Message, maxLine)))
			continue
		}
		at := tutti.Plain(p.File, maxLine)
		if p.Line > 0 {
			at = tutti.FileLine(at, p.Line, 0)
		}
		printLine(w, "%s: %s: %s\n", at, p.Level, tutti.InLine(tutti.Plain(p.Message, maxLine)))
	}
}

// inDir returns a path of a fleet file in the directory `from`.
func inDir(path, from string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(from, path)
}
