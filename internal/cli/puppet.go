package cli

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// remote is a command that sends a request to nodes.
type remote struct {
	*options
	in api.NodesQuestion
}

func newPuppetCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "puppet",
		Short: "Ask and control the Puppet of many nodes at once",
		Long: `Each command asks the nodes that --on selects. The command prints an
answer or a reason for each of these nodes. The command also names nodes that do not
answer.

A selector is an expression (CEL) that is true for the selected nodes:
  "web" in groups                       facts.os.family == "Debian"
  node.startsWith("web-")               outcome == "failed" && reason == "compile"
  now - last_run > duration("2h")       has(facts.role) && facts.role == "db"
It knows node, groups, outcome, reason, last_run, now, connected, running, paused,
puppet, agent and facts. "true" selects every node.

Exit code:
   0  all selected nodes have done it
   1  some have failed or refused
   9  some are away or silent, or it is unknown whether they are selected`,
	}
	group(cmd, "Ask",
		newPuppetStatusCommand(o), newPuppetCountCommand(o), newPuppetLastRunCommand(o), newPuppetSummaryCommand(o), newPuppetResourceCommand(o))
	group(cmd, "Control",
		newPuppetEnableCommand(o), newPuppetDisableCommand(o), newPuppetRunOnceCommand(o), newPuppetRunAllCommand(o))
	return cmd
}

// The method `command` makes a command that requests an action from nodes and shows their answers.
func (r *remote) command(cmd *cobra.Command, show func(*cobra.Command, []api.NodeAnswer) error) *cobra.Command {
	r.flags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		server, err := r.connect()
		if err != nil {
			return err
		}
		answers, err := r.ask(cmd, server)
		if err != nil {
			return err
		}
		if r.json {
			err = printJSON(cmd.OutOrStdout(), answers)
		} else {
			err = show(cmd, answers)
		}
		if err != nil {
			return err
		}
		return r.exit(cmd, answers)
	}
	return cmd
}

func (r *remote) flags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&r.in.On, "on", "", "which nodes: an expression, see tutti puppet --help")
	cmd.Flags().DurationVar(&r.in.Wait, "wait", tutti.DefaultRemoteWait, "how long to wait for nodes")
}

// The method `ask` returns the answers of all selected nodes, sorted by node. If the action changes something,
// the flag --on is required.
func (r *remote) ask(cmd *cobra.Command, server Server) ([]api.NodeAnswer, error) {
	if r.in.On == "" && (r.in.Action.Effect() || r.in.Action == tutti.RemoteRun) {
		return nil, tutti.Errorf(tutti.CodeInvalid, "name the nodes; usage: %s --on EXPRESSION; --on true selects every node", cmd.UseLine())
	}
	in, undecided, err := r.signed(cmd, server)
	if err != nil {
		return nil, err
	}
	out, err := askAll(cmd, server, in)
	out = append(out, undecided...)
	slices.SortFunc(out, func(a, b api.NodeAnswer) int { return cmp.Compare(a.Node, b.Node) })
	return out, err
}

func askAll(cmd *cobra.Command, server api.Remotes, in api.NodesQuestion) ([]api.NodeAnswer, error) {
	var out []api.NodeAnswer
	err := server.AskNodes(cmd.Context(), in, func(all []api.NodeAnswer) error {
		out = append(out, all...)
		return nil
	})
	return out, err
}

// The method `exit` prints the nodes that did not do the action, each with the reason. If there are such nodes,
// the method returns an exit code other than 0.
func (r *remote) exit(cmd *cobra.Command, answers []api.NodeAnswer) error {
	code := ExitOK
	for _, a := range answers {
		switch a.Verdict {
		case tutti.RemoteOK:
			continue
		case tutti.RemoteFailed, tutti.RemoteRefused:
			code = ExitFailed
		default:
			if code == ExitOK {
				code = ExitPartial
			}
		}
		text := a.Message
		if a.Verdict == tutti.RemoteRefused {
			text += " (" + a.Rule + ")"
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s: %s\n", a.Node, a.Verdict, text)
	}
	if code != ExitOK {
		return CommandExit(code)
	}
	return nil
}

func newPuppetStatusCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteStatus}}
	return r.command(&cobra.Command{
		Use: "status", Args: cobra.NoArgs, Short: "Show what the Puppet of each node is doing, and whether it is enabled",
		Example: `  tutti puppet status --on '"web" in groups'`,
	}, showStatus)
}

func newPuppetCountCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteStatus}}
	return r.command(&cobra.Command{
		Use: "count", Args: cobra.NoArgs, Short: "Count the nodes by what their Puppet is doing",
		Example: "  tutti puppet count",
	}, showCount)
}

func newPuppetLastRunCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteSummary}}
	return r.command(&cobra.Command{
		Use: "last-run-summary", Args: cobra.NoArgs, Short: "Show the summary that Puppet keeps of its last run on each node",
		Example: `  tutti puppet last-run-summary --on 'node == "web-01"'`,
	}, showLastRun)
}

func newPuppetSummaryCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteSummary}}
	return r.command(&cobra.Command{
		Use: "summary", Args: cobra.NoArgs, Short: "Compare the last runs of the nodes: resources, failures, times",
		Example: "  tutti puppet summary",
	}, showSummary)
}

func newPuppetResourceCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteResource}}
	cmd := r.command(&cobra.Command{
		Use: "resource TYPE [NAME]", Args: cobra.RangeArgs(1, 2), Short: "Show a resource as it is on each node; changes nothing",
		Long: `Reads a resource, or all resources of a type, with Puppet's own providers
(puppet resource). The command starts Puppet, which takes seconds. A node allows this
only if the node's policy allows the action "resource".`,
		Example: `  tutti puppet resource service nginx --on '"web" in groups'`,
	}, showResource)
	run := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		r.in.Type = args[0]
		if len(args) > 1 {
			r.in.Title = args[1]
		}
		if !cmd.Flags().Changed("wait") {
			r.in.Wait = time.Minute
		}
		return run(cmd, args)
	}
	return cmd
}

func newPuppetEnableCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteEnable}}
	cmd := r.command(&cobra.Command{
		Use: "enable", Args: cobra.NoArgs, Short: "Enable Puppet (no effect where it is enabled)",
		Long: `Lets Puppet run again, as "puppet agent --enable" does.

` + signHelp,
		Example: `  tutti puppet enable --on 'node == "web-01"'`,
	}, showChange)
	r.addYes(cmd)
	return cmd
}

func newPuppetDisableCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteDisable}}
	cmd := r.command(&cobra.Command{
		Use: "disable", Args: cobra.NoArgs, Short: "Disable Puppet (where it is disabled, the message stays)",
		Long: `Disables Puppet as "puppet agent --disable" does, in Puppet's own file. Puppet then
refuses every agent run until it is enabled. If Puppet is disabled already, the command
says so and keeps the message that is there. --force replaces the message.

` + signHelp,
		Example: `  tutti puppet disable --on '"web" in groups' -m 'disk is being replaced'`,
	}, showChange)
	r.addYes(cmd)
	cmd.Flags().StringVarP(&r.in.Message, "message", "m", "", "reason that is shown to everyone (default: who and when)")
	cmd.Flags().BoolVar(&r.in.Force, "force", false, "replace the message of a node that is disabled already")
	return cmd
}

// signHelp is the text about signatures in the help of enable and disable.
const signHelp = `If operators sign changes on nodes (tutti operator trust), the command
names the nodes that it signs for. The command refuses a node whose name does not match
the expression. If the expression uses more than "node", such as groups or facts, only
the server knows which nodes are selected. The command then asks first, or needs --yes.`

func newPuppetRunOnceCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteRun}}
	cmd := &cobra.Command{
		Use: "runonce", Args: cobra.NoArgs, Short: "Run Puppet once on the nodes that may run, all at once",
		Example: `  tutti puppet runonce --on '"web" in groups' --noop`,
	}
	r.flags(cmd)
	start := r.startFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return r.runs(cmd, start(0)) }
	return cmd
}

func newPuppetRunAllCommand(o *options) *cobra.Command {
	r := &remote{o, api.NodesQuestion{Action: tutti.RemoteRun}}
	cmd := &cobra.Command{
		Use: "runall N", Args: cobra.ExactArgs(1), Short: "Run Puppet once on the nodes that may run, N at a time",
		Long: `Keeps N runs going at the same time. When a run ends, the next one
begins. Each node is first asked whether it may run. A node may not run if its policy
denies it, if its Puppet is disabled, or while another run goes on. The command names
nodes that may not run, are away or are silent. Its exit code is then not 0.

With --rerun 30m the command begins again when all runs have ended, at the earliest half
an hour after it began. The command asks the nodes again each time, until you interrupt
the command. A failure in one round is printed and does not stop the next round. Only an
error in the command itself ends the command.`,
		Example: `  tutti puppet runall 10 --on true
  tutti puppet runall 5 --on 'now - last_run > duration("2h")' --rerun 30m`,
	}
	r.flags(cmd)
	start := r.startFlags(cmd)
	var rerun time.Duration
	cmd.Flags().DurationVar(&rerun, "rerun", 0, "begin again when all runs have ended, at the earliest after this time, until interrupted")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		n, err := strconv.Atoi(args[0])
		if err != nil || n < 1 {
			return tutti.Errorf(tutti.CodeInvalid, "%q runs at once: give a number of at least 1", args[0])
		}
		if !cmd.Flags().Changed("rerun") {
			return r.runs(cmd, start(n))
		}
		if rerun <= 0 || start(n).detach {
			return tutti.Errorf(tutti.CodeInvalid, "--rerun needs a positive time between two rounds, such as 30m, and cannot be combined with --detach")
		}
		for cmd.Context().Err() == nil {
			next := time.NewTimer(rerun)
			if err := r.runs(cmd, start(n)); err != nil && ExitCode(err) == ExitUnreachable {
				fmt.Fprintln(cmd.ErrOrStderr(), err)
			} else if _, said := errors.AsType[CommandExit](err); err != nil && !said {
				return err
			}
			select {
			case <-next.C:
			case <-cmd.Context().Done():
			}
		}
		return CommandExit(ExitInterrupted)
	}
	return cmd
}

// The type `start` contains the settings with which a round of runs begins.
type start struct {
	in     api.StartJob
	detach bool
}

// startFlags adds flags to the command. The returned function makes a value of the type `start` from these flags.
// Its argument `limit` is how many nodes run at the same time; 0 means all.
func (r *remote) startFlags(cmd *cobra.Command) func(limit int) start {
	var noop, detach bool
	var options tutti.RunOptions
	cmd.Flags().BoolVar(&noop, "noop", false, "change nothing on the nodes and publish nothing: show what would change")
	cmd.Flags().BoolVar(&detach, "detach", false, "print the job's id and return")
	cmd.Flags().StringSliceVar(&options.Tags, "tags", nil, "only resources with one of these tags; after such a run a node does not count as good")
	cmd.Flags().StringSliceVar(&options.SkipTags, "skip-tags", nil, "skip resources with one of these tags")
	cmd.Flags().StringVar(&options.Environment, "environment", "", "another environment than the nodes' own")
	cmd.Flags().BoolVar(&options.Debug, "debug", false, "record Puppet's full log: tutti run show RUN --logs")
	return func(limit int) start {
		in := api.StartJob{Runs: &api.NodeRuns{Limit: limit, RunOptions: options}, Mode: tutti.ModeApply}
		if noop {
			in.Mode = tutti.ModeNoop
		}
		return start{in, detach}
	}
}

// The method `runs` asks the nodes whether they may run, and prints the nodes that may not. Then the method
// starts one job on all nodes that may run.
func (r *remote) runs(cmd *cobra.Command, s start) error {
	server, err := r.connect()
	if err != nil {
		return err
	}
	answers, err := r.ask(cmd, server)
	if err != nil {
		return err
	}
	for _, a := range answers {
		if a.Verdict == tutti.RemoteOK {
			s.in.Runs.Nodes = append(s.in.Runs.Nodes, a.Node)
		}
	}
	// before the job begins, print the nodes that may not run; if there are any, the exit code says so, too
	named := r.exit(cmd, answers)
	if len(s.in.Runs.Nodes) == 0 {
		return named
	}
	job, err := server.StartJob(cmd.Context(), s.in)
	if err != nil {
		return err
	}
	if s.detach {
		err = r.done(cmd, string(job)+"\n", map[string]any{"job": job})
	} else {
		err = r.watch(cmd, server, job)
	}
	if err == nil {
		return named
	}
	return err
}

func showChange(cmd *cobra.Command, answers []api.NodeAnswer) error {
	var rows [][]string
	for _, a := range answers {
		if a.Verdict == tutti.RemoteOK {
			rows = append(rows, []string{string(a.Node), a.Status.Status, orDash(a.Message), orDash(oneLine(a.Status.DisableMessage, maxValue))})
		}
	}
	return tableIfAny(cmd, "NODE\tSTATUS\tNOTE\tDISABLED BECAUSE", rows)
}

func tableIfAny(cmd *cobra.Command, head string, rows [][]string) error {
	if len(rows) == 0 {
		return nil
	}
	return table(cmd.OutOrStdout(), head, rows)
}
