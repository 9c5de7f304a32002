package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
)

// DiffCode names code that nodes compile: a directory, a code or an environment of the server, or a commit. If Name is empty,
// it is the last push of the environment.
type DiffCode struct {
	Name        string
	Environment string
	For         time.Duration // how long nodes may begin to compile the code
}

// DiffSide is code that nodes may compile.
type DiffSide struct {
	Name   string
	Source *tutti.CodeSource // nil: not known
	Code   tutti.SignedCode
}

func newDiffCommand(o *options) *cobra.Command {
	d := &diffRun{options: o}
	var codes string
	cmd := &cobra.Command{
		Use:   "diff --code A..B",
		Short: "Compare what two codes would do on nodes, without applying them",
		Long: `The nodes compile both codes with their own facts, answers and secrets, up to the gate.
They apply nothing, and nobody publishes anything. The command prints which nodes have
equal catalogs, and groups the differences of the others.

A and B are directories, codes of "tutti code list", environments, or commits of the
control repository in the present directory. If A or B is empty, it is the last push of
the environment. The command uploads directories and commits, and signs a permission to
compile them. They do not become the code of an environment.

You need the verbs run and code, and a code key. Values of Sensitive parameters are not
shown.

For nodes of a Puppet Server, name its host with --compile-host. A and B are then two of
its environments. The host compiles both for each node, with the facts that the Puppet
Server has, and stores nothing. --limit is then the number of processes that compile.

The exit code is 0 if all catalogs are equal, 11 if some differ, and 12 if not all nodes
were compared.`,
		Example: `  tutti diff --code ..code
  tutti diff --code production..feature_x --on '"web" in groups'
  tutti diff --code production..feature_x --compile-host puppet`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			a, b, ranged := strings.Cut(codes, "..")
			if strings.HasPrefix(codes, "../") || !ranged || a == b {
				a, b, ranged = cutCodes(codes)
			}
			if ranged && a == b {
				return tutti.Errorf(tutti.CodeInvalid, "--code %q names the same code twice", codes)
			}
			if !ranged {
				return tutti.Errorf(tutti.CodeInvalid, "--code %q: write A..B with two codes, for example ..code", codes)
			}
			if d.wait <= 0 || d.wait > tutti.MaxCompileFor/2 {
				return tutti.Errorf(tutti.CodeInvalid, "--wait %s: more than 0s and at most %s", d.wait, tutti.MaxCompileFor/2)
			}
			if d.host == "" {
				return d.run(cmd, a, b)
			}
			if d.environment != "" {
				return tutti.Errorf(tutti.CodeInvalid, "with --compile-host, A and B are environments of the Puppet Server: leave out --environment")
			}
			if err := (tutti.ServedQuestion{A: a, B: b, Nodes: []tutti.NodeName{tutti.NodeName(d.host)}}).Validate(); err != nil {
				return err
			}
			return d.runServed(cmd, a, b)
		},
	}
	f := cmd.Flags()
	f.StringVar(&codes, "code", "", "the two codes: A..B")
	f.StringVar(&d.on, "on", "", "which nodes: an expression, see tutti puppet --help; empty: all nodes")
	f.StringVar(&d.environment, "environment", "", "compare nodes of this environment (default: the fleet's)")
	f.StringVar(&d.host, "compile-host", "", "the node with the Puppet Server whose environments A and B are")
	f.IntVar(&d.limit, "limit", 0, "largest number of nodes that compile at once; 0: only the server's limit")
	f.DurationVar(&d.wait, "wait", 30*time.Minute, "how long to wait for all compiles")
	return cmd
}

// cutCodes splits A..B if A or B begin with `..`, as in `../old..../new`.
func cutCodes(codes string) (a, b string, ok bool) {
	for i := 0; i+2 <= len(codes); i++ {
		rest := codes[i+2:]
		if codes[i:i+2] != ".." || strings.HasPrefix(rest, "/") || strings.HasPrefix(rest, ".") && !strings.HasPrefix(rest, "./") && !strings.HasPrefix(rest, "../") {
			continue
		}
		return codes[:i], rest, true
	}
	return "", "", false
}

// The type `diffRun` is one execution of the command.
type diffRun struct {
	*options
	on, environment, host string
	limit                 int
	wait                  time.Duration

	server Server
	not    map[tutti.NodeName]string // nodes that were not compared, with the reasons
	names  []tutti.NodeName          // selected nodes that can compare
}

func (d *diffRun) run(cmd *cobra.Command, a, b string) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), d.wait, tutti.Errorf(tutti.CodeDeadline, "not all nodes had compiled within --wait %s", d.wait))
	defer cancel()
	err := d.begin(ctx)
	if err != nil {
		return err
	}
	var sides [2]DiffSide
	for i, name := range []string{a, b} {
		if sides[i], err = d.deps.DiffCode(ctx, d.server, d.conn, DiffCode{name, d.environment, d.wait + time.Hour}); err != nil {
			return tutti.Wrap("", err, "code %s", orNow(name))
		}
	}
	if err := d.choose(ctx); err != nil {
		return err
	}
	view := diffView{
		Environment: d.environment, A: diffCodeOf(sides[0]), B: diffCodeOf(sides[1]),
		Groups: []diffGroup{}, Equal: []tutti.NodeName{}, NotCompared: []notCompared{},
	}
	var jobs [2]*engine.Job
	for i, side := range sides {
		if len(d.names) == 0 {
			break
		}
		if jobs[i], err = d.compile(ctx, cmd, side); err != nil {
			return err
		}
		view.Jobs = append(view.Jobs, jobs[i].ID)
	}
	if len(d.names) > 0 {
		if err := d.compare(cmd.Context(), jobs, &view); err != nil {
			return err
		}
	}
	return d.finish(cmd, view)
}

// The method `finish` prints the result, and returns the exit code for it.
func (d *diffRun) finish(cmd *cobra.Command, view diffView) error {
	view.NotCompared = append(view.NotCompared, reasons(d.not)...)
	var err error
	if d.json {
		err = printJSON(cmd.OutOrStdout(), view)
	} else {
		view.print(cmd.OutOrStdout())
	}
	switch {
	case err != nil:
		return err
	case len(view.NotCompared) > 0:
		return CommandExit(ExitNotCompared)
	case len(view.Groups) > 0:
		return CommandExit(ExitDiffers)
	}
	return nil
}

// The method `begin` connects to the server. If no environment is chosen, it chooses the fleet's.
func (d *diffRun) begin(ctx context.Context) error {
	var err error
	if d.server, err = d.connect(); err != nil || d.environment != "" {
		return err
	}
	fleet, err := d.server.GetFleet(ctx)
	if err != nil {
		return err
	}
	if d.environment = fleet.Environment.Name; d.environment == "" {
		return tutti.Errorf(tutti.CodeInvalid, "the fleet file has no environment, because a Puppet Server has the code (mode: agent): a diff compiles only code that Tutti has")
	}
	return nil
}

// The method `choose` asks the selected nodes whether they can compare catalogs.
func (d *diffRun) choose(ctx context.Context) error {
	d.not = map[tutti.NodeName]string{}
	err := d.server.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteDiff, On: d.on}, func(all []api.NodeAnswer) error {
		for _, a := range all {
			if d.says(a) {
				d.names = append(d.names, a.Node)
			}
		}
		return nil
	})
	slices.Sort(d.names)
	return err
}

// The method `says` reports whether a node has answered. If it has not, the method notes why.
func (d *diffRun) says(a api.NodeAnswer) bool {
	if a.Verdict != tutti.RemoteOK {
		d.not[a.Node] = strings.TrimSuffix(string(a.Verdict)+": "+a.Message, ": ")
	}
	return a.Verdict == tutti.RemoteOK
}

// otherDiff is how long the command waits before it asks again whether another diff has ended.
const otherDiff = time.Second

// The method `start` starts a job. Diffs take turns, so it waits for the end of another one.
func (d *diffRun) start(ctx context.Context, cmd *cobra.Command, side DiffSide) (tutti.JobID, error) {
	in := api.StartJob{Mode: tutti.ModeCompile, Diff: &api.NodeDiff{Nodes: d.names, Limit: d.limit, Code: side.Code}}
	for said := false; ; said = true {
		id, err := d.server.StartJob(ctx, in)
		if tutti.CodeOf(err) != tutti.CodeUnavailable {
			return id, err
		}
		if !said {
			printLine(cmd.ErrOrStderr(), "waiting: %s\n", err)
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(otherDiff):
		}
	}
}

// The method `compile` lets the nodes compile one code, and waits for the end. If the command ends earlier, it cancels
// the job, because nobody would see the result.
func (d *diffRun) compile(ctx context.Context, cmd *cobra.Command, side DiffSide) (*engine.Job, error) {
	id, err := d.start(ctx, cmd, side)
	if err != nil {
		return nil, err
	}
	p := newProgress()
	if err = follow(ctx, d.server, id, p, silentView{cmd.ErrOrStderr()}); err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		cancel, stop := context.WithTimeout(context.WithoutCancel(ctx), cancelDeadline)
		defer stop()
		if refused := d.server.CancelJob(cancel, api.CancelJob{Job: id, Reason: "the command that compares or checks code ended first", Now: true}); refused != nil && tutti.CodeOf(refused) != tutti.CodeConflict {
			fmt.Fprintf(cmd.ErrOrStderr(), "The job goes on. End it: tutti job cancel %s\n", id)
		}
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return nil, err
	}
	j := p.job()
	if j.Diff == nil {
		return nil, tutti.Errorf(tutti.CodeInternal, "job %s is no diff", id)
	}
	for n, why := range j.Diff.Left {
		d.not[n] = why
	}
	return j, nil
}

// cancelDeadline is how long the command waits for the cancellation of its job.
const cancelDeadline = 10 * time.Second

// The type `silentView` shows nothing of a job, only messages about the connection.
type silentView struct{ out io.Writer }

func (silentView) show(api.Watched)     {}
func (v silentView) say(message string) { fmt.Fprintln(v.out, message) }
func (silentView) finish(error)         {}
func (silentView) close()               {}

// The method `compare` compares the digests of the two compiles of each node. The nodes whose digests differ then compare
// their catalogs.
func (d *diffRun) compare(ctx context.Context, jobs [2]*engine.Job, view *diffView) error {
	runs := map[tutti.NodeName][2]*engine.Run{}
	var differ []tutti.NodeName
	broken := map[string]*diffFailure{}
	for _, n := range d.names {
		if d.not[n] != "" {
			continue
		}
		pair, whole := [2]*engine.Run{}, true
		for i, j := range jobs {
			if pair[i] = lastRun(j, n); pair[i] == nil || !converge.Compiled(pair[i]) {
				whole = false
				noteBroken(broken, "AB"[i:i+1], n, pair[i], view.Environment)
			}
		}
		switch {
		case !whole:
		case equalCompiles(pair[0], pair[1]):
			view.Equal = append(view.Equal, n)
		default:
			runs[n], differ = pair, append(differ, n)
		}
	}
	d.addFailures(broken, view)
	answers, err := d.differences(ctx, jobs, differ)
	if err != nil {
		return err
	}
	groups := grouping{}
	for _, n := range differ {
		found, told := answers[n]
		switch {
		case !told:
			d.not[n] = cmp.Or(d.not[n], "its catalogs differ, and it did not say how")
		case found.Left > 0:
			d.leftOver(n, found.Left)
			groups.add(n, found.Changes)
		case len(found.Changes) > 0:
			groups.add(n, found.Changes)
		default:
			groups.add(n, unnamed(runs[n]))
		}
	}
	view.Groups = groups.sorted()
	return nil
}

// The method `addFailures` adds the nodes that did not compile to the view.
func (d *diffRun) addFailures(broken map[string]*diffFailure, view *diffView) {
	for _, f := range broken {
		view.Failures = append(view.Failures, *f)
	}
	slices.SortFunc(view.Failures, func(a, b diffFailure) int {
		return cmp.Or(cmp.Compare(a.Code, b.Code), cmp.Compare(len(b.Nodes), len(a.Nodes)), cmp.Compare(a.Why, b.Why))
	})
	for _, f := range view.Failures {
		for _, n := range f.Nodes {
			d.not[n] = "it did not compile " + f.Code
		}
	}
}

// The method `leftOver` notes a node whose answer had no room for all changes.
func (d *diffRun) leftOver(n tutti.NodeName, changes int) {
	d.not[n] = fmt.Sprintf("%d more changes were too much for one answer", changes)
}

// The function `unnamed` describes a difference of two digests that the comparison of the catalogs does not show.
func unnamed(pair [2]*engine.Run) []tutti.CatalogChange {
	c := tutti.CatalogChange{Kind: tutti.ChangeChanged}
	switch a, b := pair[0].Compiled, pair[1].Compiled; {
	case a.Catalog != b.Catalog || pair[0].Set != pair[1].Set:
		c.Parameter, c.Text = "catalog", "the digests differ, and the parts that are compared do not"
	case a.Sources == "" || b.Sources == "" || a.Lib == "" || b.Lib == "":
		c.Parameter, c.Text = "content", tutti.ContentUnknown
	default:
		c.Parameter, c.Text = "facts", "the catalogs are equal; facts that types and providers read have changed between the compiles"
	}
	return []tutti.CatalogChange{c}
}

// equalCompiles reports whether two compiles certainly have the same catalog, exports, files and plugins.
func equalCompiles(a, b *engine.Run) bool {
	x, y := a.Compiled, b.Compiled
	return x.Catalog != "" && x.Sources != "" && x.Lib != "" &&
		x.Catalog == y.Catalog && x.Sources == y.Sources && x.Lib == y.Lib && a.Set == b.Set
}

func lastRun(j *engine.Job, n tutti.NodeName) *engine.Run {
	for _, st := range j.Steps {
		if of := st.Node(n); of != nil {
			return of.Last()
		}
	}
	return nil
}

// noteBroken notes a node that did not compile. Nodes with the same error are one entry.
func noteBroken(all map[string]*diffFailure, code string, n tutti.NodeName, r *engine.Run, environment string) {
	addBroken(all, code, n, whyBroken(r, n, environment))
}

func addBroken(all map[string]*diffFailure, code string, n tutti.NodeName, why string) {
	f := all[code+why]
	if f == nil {
		f = &diffFailure{Code: code, Why: why}
		all[code+why] = f
	}
	f.Nodes = append(f.Nodes, n)
}

// whyBroken says why a node did not compile. The run is nil if the node did not begin.
func whyBroken(r *engine.Run, n tutti.NodeName, environment string) string {
	why := "it did not begin: it went away, or was paused"
	if r != nil {
		why = string(r.Outcome())
		if r.Result != nil {
			why = strings.TrimSuffix(fmt.Sprintf("%s:%s", r.Outcome(), r.Result.Reason), ":") + ": " + r.Result.Says()
			if r.Result.Stopped {
				why = "stopped: " + r.GateWhy
			}
		}
		if r.Lost != "" {
			why = "lost: " + r.Lost
		}
	}
	why = regexp.MustCompile(`[^\s(]*/diff/`+regexp.QuoteMeta(environment)+"/").ReplaceAllString(why, "") // where the node has the code
	return withoutNode(why, n)
}

// withoutNode removes the node's name, with which Puppet's own messages end, so that nodes with the same error are equal.
func withoutNode(why string, n tutti.NodeName) string {
	return oneLine(strings.ReplaceAll(why, " on node "+string(n), ""), maxLine)
}

const (
	maxNamed  = 3 << 10 // bytes of a selector that names nodes
	maxRounds = 4       // more selectors than these: ask all selected nodes instead
)

// The method `differences` asks nodes how their catalogs differ.
func (d *diffRun) differences(ctx context.Context, jobs [2]*engine.Job, nodes []tutti.NodeName) (map[tutti.NodeName]tutti.CatalogDiff, error) {
	out := map[tutti.NodeName]tutti.CatalogDiff{}
	wanted := map[tutti.NodeName]bool{}
	for _, n := range nodes {
		wanted[n] = true
	}
	rounds := selectors(nodes)
	if len(rounds) > maxRounds {
		rounds = []string{d.on}
	}
	for _, on := range rounds {
		in := api.NodesQuestion{Action: tutti.RemoteDiff, On: on, Wait: time.Minute, Jobs: []tutti.JobID{jobs[0].ID, jobs[1].ID}}
		if err := d.server.AskNodes(ctx, in, func(all []api.NodeAnswer) error {
			for _, a := range all {
				if wanted[a.Node] && d.says(a) && a.Diff != nil {
					out[a.Node] = *a.Diff
				}
			}
			return nil
		}); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// The function `selectors` returns selectors that together select these nodes.
func selectors(nodes []tutti.NodeName) []string {
	var out []string
	for len(nodes) > 0 {
		size, n := 0, 0
		for n < len(nodes) && (n == 0 || size+len(nodes[n])+3 < maxNamed) {
			size += len(nodes[n]) + 3
			n++
		}
		names, _ := json.Marshal(nodes[:n])
		out = append(out, "node in "+string(names))
		nodes = nodes[n:]
	}
	return out
}

func orNow(name string) string {
	if name == "" {
		return "(the last push)"
	}
	return name
}
