package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The method `runServed` compares two environments of a Puppet Server. The Puppet Server's host compiles for all selected
// nodes, so these need not be connected.
func (d *diffRun) runServed(cmd *cobra.Command, a, b string) error {
	ctx, cancel := context.WithTimeoutCause(cmd.Context(), d.wait, tutti.Errorf(tutti.CodeDeadline, "not all nodes were compared within --wait %s", d.wait))
	defer cancel()
	var err error
	if d.server, err = d.connect(); err != nil {
		return err
	}
	if err := d.chooseServed(ctx); err != nil {
		return err
	}
	view := diffView{
		CompileHost: tutti.NodeName(d.host), A: diffCodeView{Name: a}, B: diffCodeView{Name: b},
		Groups: []diffGroup{}, Equal: []tutti.NodeName{}, NotCompared: []notCompared{},
	}
	found := map[tutti.NodeName]tutti.ServedDiff{}
	if len(d.names) > 0 {
		if found, err = d.served(ctx, a, b); err != nil {
			return err
		}
	}
	d.sortServed(found, &view)
	return d.finish(cmd, view)
}

// The method `chooseServed` asks the server which nodes the selector selects.
func (d *diffRun) chooseServed(ctx context.Context) error {
	d.not = map[tutti.NodeName]string{}
	err := d.server.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteDiff, On: d.on}, func(all []api.NodeAnswer) error {
		for _, a := range all {
			if a.Verdict == tutti.RemoteUndecided {
				d.says(a)
			} else { // only the Puppet Server's host must answer
				d.names = append(d.names, a.Node)
			}
		}
		return nil
	})
	slices.Sort(d.names)
	return err
}

// defaultServed is how many comparisons of up to tutti.MaxServed nodes run at once. Each of them keeps one core busy.
const defaultServed = 1

// The method `served` asks the Puppet Server's host, a few nodes at a time. The first answer decides whether the host can
// compare at all.
func (d *diffRun) served(ctx context.Context, a, b string) (map[tutti.NodeName]tutti.ServedDiff, error) {
	var mu sync.Mutex
	found := map[tutti.NodeName]tutti.ServedDiff{}
	ask := func(nodes []tutti.NodeName) error {
		for len(nodes) > 0 { // an answer has room for at least one node
			answers, err := d.askServed(ctx, tutti.ServedQuestion{A: a, B: b, Nodes: nodes})
			if err != nil {
				return err
			}
			mu.Lock()
			for _, one := range answers {
				found[one.Node] = one
			}
			before := len(nodes)
			nodes = slices.DeleteFunc(slices.Clone(nodes), func(n tutti.NodeName) bool { return found[n].Node != "" })
			mu.Unlock()
			if len(nodes) == before {
				return tutti.Errorf(tutti.CodeInternal, "%s answered for none of the nodes", d.host)
			}
		}
		return nil
	}
	parts := slices.Collect(slices.Chunk(d.names, tutti.MaxServed))
	if err := ask(parts[0]); err != nil {
		return nil, err
	}
	var group errgroup.Group
	group.SetLimit(cmp.Or(d.limit, defaultServed))
	for _, part := range parts[1:] {
		group.Go(func() error {
			if err := ask(part); err != nil {
				mu.Lock()
				defer mu.Unlock()
				for _, n := range part {
					if found[n].Node == "" {
						d.not[n] = err.Error()
					}
				}
			}
			return nil
		})
	}
	return found, group.Wait()
}

// The method `askServed` asks the Puppet Server's host about some nodes.
func (d *diffRun) askServed(ctx context.Context, q tutti.ServedQuestion) ([]tutti.ServedDiff, error) {
	if err := context.Cause(ctx); err != nil {
		return nil, err
	}
	host, err := json.Marshal(d.host)
	if err != nil {
		return nil, err
	}
	var out []tutti.ServedDiff
	why := "it did not answer"
	err = d.server.AskNodes(ctx, api.NodesQuestion{Action: tutti.RemoteCompare, On: "node == " + string(host), Wait: tutti.MaxRemoteWait, Served: &q}, func(all []api.NodeAnswer) error {
		for _, a := range all {
			if a.Verdict == tutti.RemoteOK {
				out = a.Served
			} else {
				why = strings.TrimSuffix(string(a.Verdict)+": "+a.Message, ": ")
			}
		}
		return nil
	})
	if err == nil && out == nil {
		err = tutti.Errorf(tutti.CodeConflict, "%s cannot compare: %s", d.host, why)
	}
	return out, err
}

// sortServed adds the results of all nodes to the view.
func (d *diffRun) sortServed(found map[tutti.NodeName]tutti.ServedDiff, view *diffView) {
	groups := grouping{}
	broken := map[string]*diffFailure{}
	for _, n := range slices.Sorted(maps.Keys(found)) {
		switch one := found[n]; {
		case one.Diff == nil:
			for i, environment := range []string{view.A.Name, view.B.Name} {
				if why := one.Failed[environment]; why != "" {
					addBroken(broken, "AB"[i:i+1], n, withoutNode(why, n))
				}
			}
		case one.Diff.Left > 0:
			d.leftOver(n, one.Diff.Left)
			groups.add(n, one.Diff.Changes)
		case len(one.Diff.Changes) > 0:
			groups.add(n, one.Diff.Changes)
		default:
			view.Equal = append(view.Equal, n)
		}
	}
	d.addFailures(broken, view)
	view.Groups = groups.sorted()
}
