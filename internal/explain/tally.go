package explain

import (
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
)

// Tally is a fleet in numbers, at one version of the fold. Its size does not depend on the number of nodes, except
// for the two maps of times.
type Tally struct {
	At     time.Time
	Seq    uint64 // the last event of the version
	States map[api.NodeState]int
	// Groups counts the nodes of the first groups of the fleet file by state. The group OtherGroups has the nodes of all
	// further groups. A node counts in each of its groups.
	Groups    map[tutti.GroupName]map[api.NodeState]int
	Connected int // nodes that were heard of recently
	Paused    int // nodes on which no run may begin
	Running   int // nodes that have claimed a run that has not ended
	// Stale has the stale nodes, with the time since when each is stale. The time is zero if the log does not say it.
	Stale map[tutti.NodeName]time.Time
	// Failed has the failed nodes, with the field Since of `node list`.
	Failed map[tutti.NodeName]time.Time
	Jobs   int       // jobs without a verdict
	Queue  int       // runs that are wanted and that no node has claimed
	Oldest time.Time // when the oldest of these runs was wanted; zero if there is none
	Asking int       // machines that wait for somebody to approve them
	NoENC  int       // nodes for which the last call of the ENC failed
}

// OtherGroups is the name under which a Tally counts the groups that have no name of their own in it.
const OtherGroups tutti.GroupName = "other"

// maxGroups is how many groups have a name of their own in a Tally.
const maxGroups = 30

// Tally counts the nodes as ListNodes lists them.
func (v View) Tally() Tally {
	out := Tally{
		At: v.Now, Seq: v.Seq, States: map[api.NodeState]int{}, Groups: map[tutti.GroupName]map[api.NodeState]int{},
		Stale: map[tutti.NodeName]time.Time{}, Failed: map[tutti.NodeName]time.Time{},
	}
	named := map[tutti.GroupName]bool{}
	for _, g := range v.Fleet().Groups {
		if len(named) < maxGroups {
			named[g.Name], out.Groups[g.Name] = true, map[api.NodeState]int{}
		}
	}
	if out.Groups[OtherGroups] == nil {
		out.Groups[OtherGroups] = map[api.NodeState]int{}
	}
	paused, standings := v.Paused(v.Now), v.Converge.Standings(converge.View{Has: v.has})
	for _, n := range v.Registry.Nodes {
		view, st := v.outline(n), standings(n.Node)
		v.state(n, st, &view)
		out.count(view, named)
		if view.Stands == api.NodeStale {
			out.Stale[n.Node] = v.since(n.Node, st)
		}
		if paused(n.Node) != "" {
			out.Paused++
		}
		if v.Present.ENC(n.Node).Error != "" {
			out.NoENC++
		}
	}
	for _, id := range v.Engine.Active {
		switch r := v.Engine.Runs[id]; {
		case r == nil:
		case !r.ClaimedAt.IsZero():
			out.Running++
		default:
			if out.Queue++; out.Oldest.IsZero() || r.WantedAt.Before(out.Oldest) {
				out.Oldest = r.WantedAt
			}
		}
	}
	for _, j := range v.Engine.Jobs {
		if !j.Ended() {
			out.Jobs++
		}
	}
	for _, machines := range v.Registry.Asking {
		for _, m := range machines {
			if m.Approved == nil && !m.Rejected {
				out.Asking++
			}
		}
	}
	return out
}

// The method `count` adds a node to the counts.
func (o *Tally) count(view api.NodeView, named map[tutti.GroupName]bool) {
	o.States[view.Stands]++
	if view.Connected {
		o.Connected++
	}
	if view.Stands == api.NodeFailed {
		o.Failed[view.Node] = view.Since
	}
	other := false
	for _, g := range view.Groups {
		if named[g] {
			o.Groups[g][view.Stands]++
		} else if !other {
			o.Groups[OtherGroups][view.Stands]++
			other = true
		}
	}
}
