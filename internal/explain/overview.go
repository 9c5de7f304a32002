package explain

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// summaries has the methods of a Reader about all nodes at once (ADR 0042).
type summaries struct{ rd *Reader }

// Overview returns all views of the fleet, by key. Without `reads` the views have no texts of nodes.
func (v View) Overview(reads bool) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	var failed error
	put := func(kind, name string, view any) {
		raw, err := json.Marshal(view)
		if err != nil {
			failed = fmt.Errorf("%s/%s: %w", kind, name, err)
			return
		}
		if name != "" {
			kind += "/" + name
		}
		out[kind] = raw
	}
	all, groups, causes := api.FleetView{States: map[api.NodeState]int{}}, map[tutti.GroupName]*api.GroupView{}, newCauses(v, reads)
	if f := v.Registry.Fleet; f != nil {
		all.Fleet, all.Environment, all.Code = f.Name, f.Environment.Name, v.Registry.Code[f.Environment.Name].Code
		for _, g := range f.Groups {
			groups[g.Name] = &api.GroupView{Group: g.Name, States: map[api.NodeState]int{}}
		}
	}
	for view, st := range v.nodes(reads) {
		row := v.row(view)
		row.Cause = causes.add(&view, st)
		put(api.ViewNode, string(view.Node), row)
		count(&all, row)
		for _, g := range row.Groups {
			if groups[g] == nil { // the groups of a token need not be in the fleet file
				groups[g] = &api.GroupView{Group: g, States: map[api.NodeState]int{}}
			}
			groups[g].Nodes++
			groups[g].States[row.State]++
		}
	}
	for job := range v.jobs(reads) {
		if job.Verdict == "" {
			all.Jobs++
		}
		put(api.ViewJob, string(job.Job), job)
	}
	for _, cause := range causes.list() {
		put(api.ViewCause, cause.ID, cause)
	}
	for name, group := range groups {
		put(api.ViewGroup, string(name), group)
	}
	if full := v.Space(); full != nil {
		all.Full = full.Error()
	}
	put(api.ViewFleet, "", all)
	return out, failed
}

func count(all *api.FleetView, row api.NodeRow) {
	all.Nodes++
	all.States[row.State]++
	if !row.Connected {
		all.Away++
	}
	if row.Paused != "" {
		all.Paused++
	}
	if row.Active != "" {
		all.Running++
	}
	if row.Conflicted != "" {
		all.Conflicted++
	}
}

// The method `row` returns a node as a viewer of the fleet sees it, without its cause.
func (v View) row(n api.NodeView) api.NodeRow {
	out := api.NodeRow{
		Node: n.Node, State: n.Stands, Why: n.Why, Since: n.Since, Groups: n.Groups, Connected: n.Connected, Stopped: n.Stopped,
		Observed: n.Observed, Paused: n.Paused, Conflicted: n.Conflicted, Trouble: n.Trouble, HeldBy: n.HeldBy, Active: n.Active,
		LastRun: n.LastRun, LastJob: n.LastJob, Outcome: n.Outcome, RunAt: n.RunAt, Environment: v.UsualOf(n.Node).Environment,
	}
	for _, m := range n.Matches {
		if m.Unknown == "" {
			out.Groups = append(slices.Clip(out.Groups), m.Group)
		}
	}
	if r := v.Engine.Runs[n.Active]; r != nil {
		out.ActiveJob, out.Phase = r.Job, phaseOf(r)
	}
	return out
}
