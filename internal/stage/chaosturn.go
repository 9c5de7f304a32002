package stage

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/chaos"
	"github.com/tutti-project/tutti/internal/lab"
)

// turnDeadline is how long one turn may take, including the plan and the checks of the
// nodes.
const turnDeadline = 5 * time.Minute

// The method `turns` replaces, clones and sets back machines, and restores the server, one after the other. The
// method returns the problems.
func (c Chaos) turns(ctx context.Context) ([]string, error) {
	fleet, spare, err := c.spare(ctx)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, t := range chaos.Turns(c.Seed, fleet, spare != nil) {
		c.Say("%s", t)
		more, err := c.turn(ctx, t, spare)
		if err != nil {
			return found, tutti.Wrap("", err, "%s (seed %d)", t, c.Seed)
		}
		for _, f := range more {
			found = append(found, fmt.Sprintf("after %s: %s", t, f))
		}
	}
	return found, nil
}

// The method `spare` returns the hosts that are nodes, and the first host that is not a node. If
// all hosts are nodes, the second result is nil.
func (c Chaos) spare(ctx context.Context) (chaos.Fleet, *lab.Host, error) {
	nodes, err := c.Fleet.Client.ListNodes(ctx)
	f := chaos.Fleet{Server: c.Fleet.Server.Name}
	var spare *lab.Host
	for _, h := range c.Fleet.Nodes {
		switch is := slices.ContainsFunc(nodes, func(n api.NodeView) bool { return string(n.Node) == h.Name }); {
		case is:
			f.Nodes = append(f.Nodes, h.Name)
		case spare == nil:
			spare = h
		}
	}
	return f, spare, err
}

// The method `turn` executes one turn. After the turn, the method checks the state of good nodes, executes the plan
// once more, and checks the nodes again.
func (c Chaos) turn(ctx context.Context, t chaos.Turn, spare *lab.Host) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, turnDeadline, fmt.Errorf("not over within %s", turnDeadline))
	defer cancel()
	found, err := c.happen(ctx, t, spare)
	if err != nil {
		return nil, err
	}
	if err := c.settle(ctx); err != nil {
		return nil, err
	}
	before, err := c.falseGood(ctx)
	if err != nil {
		return nil, err
	}
	last, err := c.last(ctx)
	if err != nil {
		return nil, err
	}
	if last.Verdict != tutti.VerdictSucceeded {
		found = append(found, fmt.Sprintf("job %s %s: %s", last.Job, last.Verdict, last.Message))
	}
	after, err := c.falseGood(ctx)
	return slices.Concat(found, before, after), err
}

func (c Chaos) happen(ctx context.Context, t chaos.Turn, spare *lab.Host) ([]string, error) {
	h, err := c.Fleet.Lab.Host(t.Host)
	if err != nil {
		return nil, err
	}
	switch t.Kind {
	case chaos.SetBack:
		return nil, c.around(ctx, h,
			"systemctl stop tutti-agent; rm -rf /var/tmp/tutti-before; cp -a /var/lib/tutti/agent /var/tmp/tutti-before; systemctl start tutti-agent",
			"systemctl stop tutti-agent; rm -rf /var/lib/tutti/agent; mv /var/tmp/tutti-before /var/lib/tutti/agent; systemctl start tutti-agent")
	case chaos.Restore:
		return nil, c.around(ctx, h,
			"rm -f /var/tmp/tutti-before.tar; tutti server backup /var/tmp/tutti-before.tar",
			`systemctl stop tutti-server; rm -rf /var/lib/tutti/server
				tutti server restore /var/tmp/tutti-before.tar --dir /var/lib/tutti/server; systemctl start tutti-server; rm /var/tmp/tutti-before.tar`)
	case chaos.Replace:
		return nil, c.replace(ctx, h)
	case chaos.Clone:
		return c.clone(ctx, h, spare)
	}
	return nil, fmt.Errorf("unknown turn %q", t.Kind)
}

// The method `around` runs a script on a host, then executes the plan, and then runs a second script on the host.
func (c Chaos) around(ctx context.Context, h *lab.Host, before, after string) error {
	if _, err := Output(ctx, h, nil, "sh", "-euc", before); err != nil {
		return err
	}
	if _, err := c.last(ctx); err != nil {
		return err
	}
	_, err := Output(ctx, h, nil, "sh", "-euc", after)
	return err
}

func (c Chaos) replace(ctx context.Context, h *lab.Host) error {
	if _, err := Output(ctx, h, nil, "sh", "-euc", "systemctl disable --now --quiet tutti-agent; rm -rf /var/lib/tutti/agent"); err != nil {
		return err
	}
	if err := c.Fleet.Client.ReplaceNode(ctx, tutti.NodeName(h.Name)); err != nil {
		return err
	}
	return c.Fleet.Join(ctx, h)
}

// The method `clone` copies a node's state to the spare host. The method lets both machines run until the server
// notices the clone, and keeps the first machine.
func (c Chaos) clone(ctx context.Context, h, spare *lab.Host) ([]string, error) {
	name := tutti.NodeName(h.Name)
	// tar ends with 1 if the agent has changed a file meanwhile
	packed, err := Output(ctx, h, nil, "sh", "-c", "tar -C /var/lib/tutti/agent -c . || [ $? = 1 ]")
	if err != nil {
		return nil, err
	}
	const unpack = "mkdir -p /var/lib/tutti/agent; chmod 700 /var/lib/tutti/agent; tar -C /var/lib/tutti/agent -x; systemctl start tutti-agent"
	if _, err := Output(ctx, spare, packed, "sh", "-euc", unpack); err != nil {
		return nil, err
	}
	var d api.NodeDetail
	for d.Conflicted == "" {
		if d, err = c.Fleet.Client.ShowNode(ctx, name); err != nil {
			return nil, err
		}
		if d.Conflicted == "" && !sleep(ctx, askAgainEvery) {
			return []string{fmt.Sprintf("node %s is two machines, but the server does not report this", name)}, nil
		}
	}
	var found []string
	if d.Standing.State == api.NodeGood {
		found = append(found, fmt.Sprintf("node %s counts as good, although it is two machines", name))
	}
	if _, err := Output(ctx, spare, nil, "sh", "-euc", "systemctl stop tutti-agent; rm -rf /var/lib/tutti/agent"); err != nil {
		return nil, err
	}
	for _, m := range slices.Backward(d.Machines) {
		if m.Host == h.Name {
			_, hex, _ := strings.Cut(string(m.Ticket), ":")
			return found, c.Fleet.Client.KeepNode(ctx, api.KeepNode{Node: name, Boot: hex})
		}
	}
	return nil, fmt.Errorf("node %s has no machine on this host: %v", name, d.Machines)
}

// falseGood makes a noop run on all nodes that the server calls good. The method returns a message for each node whose
// noop run failed or would change something. A Notify resource does not count, because each run reports it as a change.
func (c Chaos) falseGood(ctx context.Context) ([]string, error) {
	good, err := c.good(ctx)
	if err != nil || len(good) == 0 {
		return nil, err
	}
	job, err := c.Fleet.Client.StartJob(ctx, api.StartJob{Mode: tutti.ModeNoop, Runs: &api.NodeRuns{Nodes: good}})
	if err != nil {
		return nil, err
	}
	results := map[tutti.NodeName]tutti.Result{}
	nodes := map[tutti.RunID]tutti.NodeName{}
	err = c.Fleet.Client.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		if w.Event == nil {
			return nil
		}
		switch b := w.Event.Body.(type) {
		case *tutti.RunWanted:
			nodes[b.Order.Run] = b.Order.Node
		case *tutti.RunFinished:
			results[nodes[b.Result.Run]] = b.Result
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	still, err := c.good(ctx)
	var found []string
	for _, n := range good {
		r, is := results[n]
		first := slices.IndexFunc(r.Changes, func(change tutti.Change) bool { return !strings.HasPrefix(change.Resource, "Notify[") })
		switch {
		case !is:
			return nil, fmt.Errorf("job %s has no result of %s", job, n)
		case !r.Outcome.Good():
			found = append(found, fmt.Sprintf("%s counted as good, but its noop run %s was %s: %s", n, r.Run, r.Outcome, r.Message))
		case !slices.Contains(still, n) && first >= 0:
			found = append(found, fmt.Sprintf("%s counted as good, but noop run %s would change %s: %s", n, r.Run, r.Changes[first].Resource, r.Changes[first].Message))
		case !slices.Contains(still, n):
			if d, err := c.Fleet.Client.ShowNode(ctx, n); err == nil {
				c.Say("%s does not count as good after noop run %s: %s, %s", n, r.Run, d.Standing.State, d.Standing.Why)
			}
		}
	}
	return found, err
}

// The method `good` returns the connected nodes that the server calls good.
func (c Chaos) good(ctx context.Context) (out []tutti.NodeName, err error) {
	nodes, err := c.Fleet.Client.ListNodes(ctx)
	for _, n := range nodes {
		if n.Stands == api.NodeGood && n.Connected {
			out = append(out, n.Node)
		}
	}
	return out, err
}
