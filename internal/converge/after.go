package converge

import (
	"cmp"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `happened` is the last event of a run that can let other nodes begin or go: its compile, its stop, or its end.
type happened struct {
	run *engine.Run
	seq uint64
	at  time.Time
}

// lastEvent returns the last of these events. The sequence is 0 if there was none yet.
func lastEvent(r *engine.Run) happened {
	out := happened{r, r.CompiledSeq, r.CompiledAt}
	if r.Gate == tutti.GateStop && r.GatedSeq > out.seq {
		out.seq, out.at = r.GatedSeq, r.GatedAt
	}
	if r.EndedSeq > out.seq {
		out.seq, out.at = r.EndedSeq, r.EndedAt
	}
	return out
}

// The method `after` returns the run of another node whose event lets a node begin or go now. The server decides after
// each batch of events. So this event is one of those that came since the last decision that had no result. If several
// events came at the same time, a run that answers a question of the node comes first, and then the latest event. The
// result is empty if no run's event came since then: then the node has waited only for its own compile, or for a
// moment.
func (d *decision) after(seat *seat) tutti.RunID {
	if d.latest == nil {
		d.latest = []happened{}
		for _, other := range d.seats {
			for _, r := range other.runs {
				if e := lastEvent(r); e.seq > d.view.Decided {
					d.latest = append(d.latest, e)
				}
			}
		}
		slices.SortFunc(d.latest, func(a, b happened) int { return cmp.Compare(b.seq, a.seq) })
	}
	var own uint64 // the node began to wait with this event
	if r := lastOf(seat.runs); r != nil {
		own = lastEvent(r).seq
	}
	var last []happened // of other nodes, at the same time
	for _, e := range d.latest {
		if e.seq < own || len(last) > 0 && !e.at.Equal(last[0].at) || len(last) == maxLatest {
			break
		}
		if e.run.Node != seat.node {
			last = append(last, e)
		}
	}
	if len(last) == 0 {
		return ""
	}
	for _, e := range last {
		if len(last) > 1 && d.feeds(e.run.Node, seat.node) {
			return e.run.Run
		}
	}
	return last[0].run.Run
}

// maxLatest limits for how many runs the method `after` looks for a question that they answer.
const maxLatest = 4

// The method `publisher` returns a function that returns the run that changed the answer to a question since the node has
// compiled. If no run of this step did, the function does the same as the method `after`.
func (d *decision) publisher(q tutti.Query) func(*seat) tutti.RunID {
	return func(seat *seat) tutti.RunID {
		by := d.seats[d.state.changer(seat.node, q)]
		c, _ := d.state.data.LastChange(seat.node, q)
		if by == nil || by.node == seat.node || len(by.runs) == 0 || c.Seq < seat.run.CompiledSeq {
			return d.after(seat)
		}
		return lastOf(by.runs).Run
	}
}

// The method `feeds` reports whether a node answers a question of another node in this job.
func (d *decision) feeds(from, to tutti.NodeName) bool {
	for q := range d.state.data.Questions(to) {
		for n := range q.Producers(d.job.ID) {
			if n == from {
				return true
			}
		}
	}
	return false
}
