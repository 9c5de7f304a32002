package cli

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

func newNodeCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{Use: "node", Short: "Show and remove nodes"}
	group(cmd, "Look",
		newNodeListCommand(o), newNodeCausesCommand(o), newNodeShowCommand(o), newNodePendingCommand(o))
	group(cmd, "Change",
		newNodeApproveCommand(o), newNodeRejectCommand(o),
		newNodeChangeCommand(o, "replace NODE", "Replace a node's machine: let another machine join under its name",
			"Node %s may be replaced: the next matching token or certificate admits another machine under this name.\n", Server.ReplaceNode),
		newNodeChangeCommand(o, "remove NODE", "Remove a node: end its identity and withdraw what it published",
			"Node %s is removed.\n", Server.RemoveNode),
		newNodeKeepCommand(o),
	)
	return cmd
}

func newNodeKeepCommand(o *options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "keep NODE [BOOT]",
		Short: "Keep one of two machines that have the same node key",
		Long: `After a disk was copied, two machines have the same key. The node is then
conflicted, and the server accepts nothing from it. "tutti node show NODE" lists the
machines. BOOT is the beginning of the right machine's boot id or ticket.
From then on the server refuses the other machines. Make each of these machines a
separate node, or switch it off.

Without BOOT the server accepts the next machine that connects with the node's key. Use
the command without BOOT after an agent was downgraded.`,
		Example: "  tutti node keep web-01 3f2a",
		Args:    cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			in := api.KeepNode{Node: tutti.NodeName(args[0])}
			if len(args) > 1 {
				in.Boot = args[1]
			}
			if err := o.confirm(cmd, "keep "+strings.Join(args, " ")); err != nil {
				return err
			}
			if err := server.KeepNode(cmd.Context(), in); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf("From now on, node %s is that machine.\n", in.Node), map[string]any{"node": in.Node, "boot": in.Boot})
		},
	}
	o.addYes(cmd)
	return cmd
}

func newNodeListCommand(o *options) *cobra.Command {
	var states []string
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the nodes, their state and how their last run ended",
		Example: "  tutti node list\n  tutti node list --state failed,silent",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := knownStates(states); err != nil {
				return err
			}
			server, err := o.connect()
			if err != nil {
				return err
			}
			nodes, err := server.ListNodes(cmd.Context())
			if err != nil {
				return err
			}
			if len(states) > 0 {
				nodes = slices.DeleteFunc(nodes, func(n api.NodeView) bool { return !slices.Contains(states, string(n.Stands)) })
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), nodes)
			}
			now := time.Now()
			var rows [][]string
			for _, n := range nodes {
				rows = append(rows, []string{
					string(n.Node), connection(n), ago(n.SeenAt, now), stands(n), lastOutcome(n), ago(n.RunAt, now), jobOf(n), orDash(allGroups(n)),
				})
			}
			err = table(cmd.OutOrStdout(), "NODE\tSTATE\tSEEN\tSTANDS\tLAST RUN\tBEGAN\tJOB\tGROUPS", rows)
			if all := countStands(nodes); all != "" && err == nil {
				_, err = fmt.Fprintln(cmd.OutOrStdout(), all)
			}
			for _, n := range nodes {
				if n.Conflicted != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", n.Node, conflict(n))
				}
				if n.Trouble != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", n.Node, tutti.OneLine(n.Trouble))
				}
				if n.Unnoted != "" {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", n.Node, notNoted(n))
				}
				if len(n.TooOldFor) > 0 {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", n.Node, tutti.OneLine(tutti.TooOld(n.Node, n.Version, n.TooOldFor)))
				}
			}
			if old := api.OldGrants(nodes); old != "" {
				fmt.Fprintf(cmd.ErrOrStderr(), "%s; see: tutti grants suggest\n", old)
			}
			return err
		},
	}
	cmd.Flags().StringSliceVar(&states, "state", nil, "only nodes in these states (column STANDS; with commas)")
	return cmd
}

// knownStates refuses words that are not states of nodes.
func knownStates(words []string) error {
	for _, word := range words {
		if !slices.Contains(api.NodeStates, api.NodeState(word)) {
			return tutti.Errorf(tutti.CodeInvalid, "--state: unknown state %q (states: %s)", word, joined(api.NodeStates))
		}
	}
	return nil
}

// The function `stands` describes the state of a node in one or two words. A server of an earlier release does
// not send the state. The text then is a dash.
func stands(n api.NodeView) string {
	switch {
	case n.Observed:
		return string(n.Stands) + " (observed)"
	case n.Stands == api.NodeGood && n.Proved:
		return "good (proved)"
	}
	return orDash(string(n.Stands))
}

// countStands returns how many nodes are in each state, like "3 good, 1 stale". countStands returns an empty
// text if the states are unknown.
func countStands(nodes []api.NodeView) string {
	counts := map[api.NodeState]int{}
	for _, n := range nodes {
		counts[n.Stands]++
	}
	delete(counts, "")
	var out []string
	for _, state := range slices.SortedFunc(maps.Keys(counts), byState) {
		out = append(out, fmt.Sprintf("%d %s", counts[state], state))
	}
	return strings.Join(out, ", ")
}

// byState sorts the states of nodes. Good comes first. The more attention a state needs, the later it comes.
// States that this release does not know come last.
func byState(a, b api.NodeState) int {
	// an unknown state is not in the list: its index is -1, which becomes the largest unsigned number
	place := func(s api.NodeState) uint { return uint(slices.Index(api.NodeStates, s)) }
	return cmp.Or(cmp.Compare(place(a), place(b)), cmp.Compare(a, b))
}

// lastOutcome returns the outcome of a node's last run.
func lastOutcome(n api.NodeView) string {
	if n.Proved && n.Outcome == "" {
		return "proof"
	}
	return orDash(outcome(n.Outcome, n.Reason))
}

// If two machines have the key of a node, the function `conflict` returns a text that says what follows
// from this, and what to do.
func conflict(n api.NodeView) string {
	return fmt.Sprintf("%s; the server accepts nothing from the node and begins nothing there: tutti node show %s, then tutti node keep %s BOOT", n.Conflicted, n.Node, n.Node)
}

// notNoted returns a text for a node whose agent could not record runs that Tutti did not start.
func notNoted(n api.NodeView) string {
	return "runs that Tutti did not start could not be noted: " + tutti.OneLine(n.Unnoted)
}

func connection(n api.NodeView) string {
	switch {
	case n.Conflicted != "":
		return "conflicted"
	case n.Stopped:
		return "stopped"
	case n.Active != "" && n.Connected:
		return "running"
	case n.Connected:
		return "connected"
	}
	return "away"
}

// jobOf returns the job of a node's last run. If no server ordered the run, jobOf returns the word for this kind
// of run.
func jobOf(n api.NodeView) string {
	if n.Foreign {
		return foreignWord(n.Local)
	}
	return orDash(string(n.LastJob))
}

// foreignWord is the word for a run that no server ordered.
func foreignWord(l *tutti.Local) string {
	switch {
	case l == nil:
		return "foreign"
	case l.Safety:
		return "safety"
	}
	return "local"
}

// foreignWords describes who began a run that no server ordered.
func foreignWords(l *tutti.Local) string {
	switch {
	case l == nil:
		return "foreign, not started by Tutti"
	case l.Safety:
		return "a safety run of its agent, without the server"
	}
	return "local, begun by a person on the node"
}

// The function `outcome` formats an outcome with its reason, in the syntax of plans.
func outcome(o tutti.Outcome, r tutti.Reason) string {
	if r == "" {
		return string(o)
	}
	return string(o) + ":" + string(r)
}

func newNodeShowCommand(o *options) *cobra.Command {
	return &cobra.Command{
		Use:     "show NODE",
		Short:   "Show a node: its state, its last run, what it read and published",
		Example: "  tutti node show web-01",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			n, err := server.ShowNode(cmd.Context(), tutti.NodeName(args[0]))
			if err != nil {
				return err
			}
			if o.json {
				return printJSON(cmd.OutOrStdout(), n)
			}
			printNode(cmd.OutOrStdout(), n.NodeView, time.Now())
			printStanding(cmd.OutOrStdout(), n, time.Now())
			return nil
		},
	}
}

// groupText returns the groups of a node, each with the reason why the node is in it.
func groupText(n api.NodeView, now time.Time) string {
	var out []string
	for _, g := range n.Groups {
		text := string(g)
		if why := n.GroupsWhy[g]; why != "" {
			text += " (" + why + ")"
		}
		out = append(out, text)
	}
	for _, m := range n.Matches {
		if m.Unknown != "" {
			continue
		}
		text := fmt.Sprintf("%s (where, since %s", m.Group, ago(m.Since, now))
		if m.Facts != "" {
			text += ", from facts " + shortCode(m.Facts)
		}
		out = append(out, text+")")
	}
	return orDash(strings.Join(out, ", "))
}

// allGroups returns the groups of a node for a table. A question mark follows a group of which nobody knows whether the node
// is in it.
func allGroups(n api.NodeView) string {
	var out []string
	for _, g := range n.Groups {
		out = append(out, string(g))
	}
	for _, m := range n.Matches {
		if m.Unknown != "" {
			m.Group += "?"
		}
		out = append(out, string(m.Group))
	}
	slices.Sort(out)
	return joined(out)
}

func printNode(w io.Writer, n api.NodeView, now time.Time) {
	printLine(w, "node      %s\nkey       %s\ngroups    %s\n", n.Node, n.Key, groupText(n, now))
	for _, m := range n.Matches {
		if m.Unknown != "" {
			printLine(w, "unknown   whether it is in group %s: %s\n", m.Group, tutti.InLine(m.Unknown))
		}
	}
	printLine(w, "joined    %s\nstate     %s, seen %s\nagent     %s\npuppet    %s\n",
		n.JoinedAt.Local().Format(time.DateTime), connection(n), ago(n.SeenAt, now), orDash(tutti.InLine(n.Version)), orDash(tutti.InLine(n.Puppet)))
	if n.Environment != "" {
		printLine(w, "code      environment %s\n", n.Environment)
	}
	if n.ENC != nil {
		printENC(w, *n.ENC, now)
	}
	if c := n.Certificate; c != nil {
		printLine(w, "cert      %s, until %s, %s\n", c.Serial, day(c.Ends), tutti.InLine(extensionText(c.Extensions)))
	}
	if n.Warm != 0 {
		printLine(w, "warm      Puppet is loaded, in %d MiB\n", n.Warm>>20)
	}
	if n.Conflicted != "" {
		printLine(w, "conflict  %s\n", conflict(n))
	}
	for _, m := range n.Machines {
		printLine(w, "machine   %s, last connected %s\n", m, ago(m.SeenAt, now))
	}
	if n.Trouble != "" {
		printLine(w, "trouble   %s\n", tutti.OneLine(n.Trouble))
	}
	if n.Unnoted != "" {
		printLine(w, "unnoted   %s\n", notNoted(n))
	}
	if len(n.TooOldFor) > 0 {
		printLine(w, "too old   %s\n", tutti.OneLine(tutti.TooOld(n.Node, n.Version, n.TooOldFor)))
	}
	if len(n.OldGrants) > 0 {
		printLine(w, "grants    %s\n", api.OldGrants([]api.NodeView{n}))
	}
	if n.Paused != "" {
		printLine(w, "paused    %s\n", strings.TrimPrefix(n.Paused, "paused "))
	}
	if n.HeldBy != "" {
		printLine(w, "held by   job %s, exclusively\n", n.HeldBy)
	}
	if n.LastRun == "" {
		fmt.Fprintln(w, "last run  never")
		return
	}
	of := "of job " + jobOf(n)
	if n.Foreign {
		of = "foreign: not started by Tutti"
	}
	if n.Local != nil {
		of = foreignWords(n.Local)
	}
	printLine(w, "last run  %s, %s, %s\noutcome   %s\n", n.LastRun, ago(n.RunAt, now), of, lastOutcome(n))
	if n.Message != "" && (len(n.Failures) == 0 || !strings.Contains(n.Failures[0].Message, n.Message)) {
		printLine(w, "message   %s\n", tutti.OneLine(n.Message))
	}
	for _, f := range n.Failures {
		printLine(w, "  %s\n", f)
	}
}

// newNodeChangeCommand returns a command that asks first and then changes a node.
func newNodeChangeCommand(o *options, use, summary, done string, change nodeChange) *cobra.Command {
	cmd := &cobra.Command{
		Use:     use,
		Short:   summary,
		Example: "  tutti node " + strings.Fields(use)[0] + " web-01",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			server, err := o.connect()
			if err != nil {
				return err
			}
			if err := o.confirm(cmd, cmd.Name()+" node "+args[0]); err != nil {
				return err
			}
			if err := change(server, cmd.Context(), tutti.NodeName(args[0])); err != nil {
				return err
			}
			return o.done(cmd, fmt.Sprintf(done, args[0]), map[string]any{"node": args[0], "change": cmd.Name()})
		},
	}
	o.addYes(cmd)
	return cmd
}
