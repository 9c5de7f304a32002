package explain

import (
	"context"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `examined` is the state of a node, with additional data from its record and the log.
type examined struct {
	stood
	record  *tutti.Record // nil if the record is not stored
	reads   []tutti.Read  // the reads of the record; if there is no record, the reads of the fold, which have no places
	changed map[string]api.ChangedRead
	order   []string // the keys of the map `changed`, in order
}

// The method `examine` reads the state of a node from the fold, and then the rest from the log and the blobs.
func (rd *Reader) examine(ctx context.Context, node tutti.NodeName) (*examined, error) {
	x := &examined{changed: map[string]api.ChangedRead{}}
	err := rd.look(ctx, func(v View) (err error) {
		x.stood, err = v.stand(node)
		return err
	})
	if err != nil {
		return nil, err
	}
	if x.record, err = rd.loadRecord(ctx, x.stood.record); err != nil {
		return nil, err
	}
	switch {
	case x.record != nil:
		x.reads = x.record.Reads
	case x.asked != nil:
		x.reads = x.asked.Reads
	}
	if len(x.stood.changed)+len(x.waits) == 0 && x.standing.State != api.NodeSuspect {
		return x, nil
	}
	return x, rd.trace(ctx, x)
}

// The method `trace` finds in the log who has changed the data that a node read.
func (rd *Reader) trace(ctx context.Context, x *examined) error {
	node := x.view.Node
	var keys []string
	for _, q := range x.stood.changed {
		keys = append(keys, pathsOf(node, q)...)
	}
	for _, w := range x.waits {
		keys = append(keys, pathsOf(node, w.Query)...)
	}
	t, err := rd.trail(ctx, keys...)
	if err != nil {
		return err
	}
	asked := map[string]tutti.Read{}
	for _, r := range x.reads {
		asked[identify(r.Query)] = r
	}
	var views []*api.RunView
	for _, q := range x.stood.changed {
		c := api.ChangedRead{Query: q, At: placeOf(x.record, q)}
		read := asked[identify(q)]
		c.Was = read.Digest
		if c.Causes, err = t.causes(ctx, node, q, moment{read.Seq, x.asOf}); err != nil {
			return err
		}
		for _, cause := range c.Causes {
			views = append(views, cause.Run)
		}
		x.order = append(x.order, identify(q))
		x.changed[identify(q)] = c
	}
	for i := range x.waits {
		x.waits[i].Before = t.providers(node, x.waits[i].Query)
		for _, cause := range x.waits[i].Before {
			views = append(views, cause.Run)
		}
	}
	x.since(t)
	return rd.runs(ctx, views...)
}

// maxProviders is how many earlier answers an explanation shows for a question without an answer.
const maxProviders = 5

// The method `providers` returns the nodes and operators who answered a question earlier, the
// latest one first.
func (t *trail) providers(node tutti.NodeName, q tutti.Query) []api.Cause {
	var out []api.Cause
	for _, key := range pathsOf(node, q) {
		for _, v := range t.values[key] {
			if !v.Unset {
				out = append(out, causeOf(key, v))
			}
		}
	}
	slices.SortFunc(out, func(a, b api.Cause) int { return bySeq(b, a) })
	return out[:min(len(out), maxProviders)]
}

// The method `since` finds out when a node became stale or suspect.
func (x *examined) since(t *trail) {
	st := &x.standing
	switch st.State {
	case api.NodeSuspect:
		if e, known := t.pushed[x.code]; known && st.Run != nil && st.Run.Code != x.code {
			st.Since = e.At
		} else if x.rests != nil && !x.rests.FactsAt.IsZero() {
			st.Since = x.rests.FactsAt
		}
	case api.NodeStale:
		first := time.Time{}
		for _, c := range x.changed {
			if len(c.Causes) > 0 && (first.IsZero() || c.Causes[0].At.Before(first)) {
				first = c.Causes[0].At
			}
		}
		if !first.IsZero() {
			st.Since = first
		}
	default: // st.Since is already the time of the node's last run
	}
}

// placeOf returns the place in the code where a run asked a question, if the run's record contains the place.
func placeOf(record *tutti.Record, q tutti.Query) tutti.Place {
	if record == nil {
		return tutti.Place{}
	}
	id := identify(q)
	for _, r := range record.Reads {
		if identify(r.Query) == id && r.At != (tutti.Place{}) {
			return r.At
		}
	}
	if q.Kind == tutti.QueryHiera {
		for _, k := range record.Keys {
			if k.Key == q.Key {
				return k.At
			}
		}
	}
	return tutti.Place{}
}

// ShowNode implements tutti.Explains.
func (rd *Reader) ShowNode(ctx context.Context, node tutti.NodeName) (api.NodeDetail, error) {
	x, err := rd.examine(ctx, node)
	if err != nil {
		return api.NodeDetail{}, err
	}
	out := api.NodeDetail{NodeView: x.view, Standing: x.standing}
	if x.asked != nil || x.record != nil {
		out.Recorded = x.basis
	}
	shown := map[string]bool{}
	for _, r := range x.reads {
		v := api.ReadView{Read: r}
		if c, changed := x.changed[identify(r.Query)]; changed {
			v.Changed, shown[identify(r.Query)] = true, true
			if len(c.Causes) > 0 {
				v.ChangedAt = c.Causes[0].At
			}
		}
		out.Reads = append(out.Reads, v)
	}
	for _, id := range x.order { // hiera keys that had no value
		if c := x.changed[id]; !shown[id] {
			v := api.ReadView{Read: tutti.Read{Query: c.Query, At: c.At}, Changed: true}
			if len(c.Causes) > 0 {
				v.ChangedAt = c.Causes[0].At
			}
			out.Reads = append(out.Reads, v)
		}
	}
	switch {
	case x.record != nil:
		out.Published, out.Exports, out.Keys = x.record.Published, x.record.Exports, len(x.record.Keys)
		for _, k := range x.record.Keys {
			if !k.Found {
				out.Absent++
			}
		}
	case x.asked != nil:
		out.Keys, out.Absent = len(x.asked.Keys), len(x.asked.Keys)
	}
	return out, nil
}

// ExplainNode implements tutti.Explains.
func (rd *Reader) ExplainNode(ctx context.Context, node tutti.NodeName) (api.NodeExplanation, error) {
	x, err := rd.examine(ctx, node)
	if err != nil {
		return api.NodeExplanation{}, err
	}
	out := api.NodeExplanation{
		Node: node, Standing: x.standing, Active: x.active, Basis: x.rests, Reads: len(x.reads), Waits: x.waits, Failures: x.failures, Before: x.before,
	}
	for _, id := range x.order {
		out.Changed = append(out.Changed, x.changed[id])
	}
	return out, nil
}
