package explain

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/plain"
)

// The type `trail` contains the changes of data that are still in the log. The trail is read outside the writer.
type trail struct {
	values  map[string][]api.ValueVersion      // by key, in order
	exports map[tutti.NodeName][]exportsChange // the exports that other nodes read, in order
	pushed  map[tutti.Digest]tutti.Event       // the last push of each code
	members []tutti.Event                      // the events that can change the groups of nodes and the answers of the ENC, in order
	through uint64                             // up to this sequence only the events of a snapshot exist
	blobs   tutti.Blobs
	sets    map[tutti.Digest][]tutti.Export
}

// exportsChange is a set of exports and the event that made it the node's present set. The set stays until the node's
// next set, or until the removal of the node.
type exportsChange struct {
	tutti.ExportsSet
	event tutti.Event
}

// The method `trail` reads from the log all changes of these keys, all exports and all pushes.
func (rd *Reader) trail(ctx context.Context, keys ...string) (*trail, error) {
	t := &trail{
		values: map[string][]api.ValueVersion{}, exports: map[tutti.NodeName][]exportsChange{},
		through: rd.past.Through(), pushed: map[tutti.Digest]tutti.Event{}, blobs: rd.blobs, sets: map[tutti.Digest][]tutti.Export{},
	}
	for _, key := range keys {
		t.values[key] = nil
	}
	for e, err := range rd.past.History(ctx, 0) {
		if err != nil {
			return nil, tutti.Wrap("", err, "read the log")
		}
		t.add(e)
	}
	return t, nil
}

func (t *trail) add(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.ValueSet, *tutti.ValueUnset, *tutti.SecretSealed:
		if _, wanted := t.values[e.Body.ID()]; wanted {
			t.values[e.Body.ID()] = append(t.values[e.Body.ID()], version(e))
		}
	case *tutti.ExportsSet:
		if !b.Overlay {
			t.exports[b.Node] = append(t.exports[b.Node], exportsChange{*b, e})
		}
	case *tutti.FleetSet, *tutti.NodeEnrolled, *tutti.NodeClassified:
		t.members = append(t.members, e)
	case *tutti.CodePushed:
		t.pushed[b.Code] = e
	case *tutti.NodeRemoved: // the removal withdraws everything that the node published
		if b.Keeps {
			return
		}
		if len(t.exports[b.Node]) > 0 {
			t.exports[b.Node] = append(t.exports[b.Node], exportsChange{tutti.ExportsSet{Node: b.Node}, e})
		}
		for key, versions := range t.values {
			if last := len(versions) - 1; last >= 0 && !versions[last].Unset && versions[last].Owner == b.Node {
				t.values[key] = append(versions, api.ValueVersion{Seq: e.Seq, At: e.At, By: e.By, Unset: true, Owner: b.Node})
			}
		}
	}
}

// The function `version` returns the value after an event.
func version(e tutti.Event) api.ValueVersion {
	v := api.ValueVersion{Seq: e.Seq, At: e.At, By: e.By}
	switch b := e.Body.(type) {
	case *tutti.ValueSet:
		v.Value, v.Owner, v.Job, v.Run = b.Value, b.Owner, b.Job, b.Run
	case *tutti.ValueUnset:
		v.Unset, v.Owner, v.Job, v.Run = true, b.Owner, b.Job, b.Run
	case *tutti.SecretSealed:
		v.Value, v.Owner, v.Job, v.Run = b.Value(nil), b.Owner, b.Job, b.Run
	}
	return v
}

// causeOf returns a version of a value as the cause of a changed answer.
func causeOf(key string, v api.ValueVersion) api.Cause {
	c := api.Cause{Seq: v.Seq, At: v.At, By: v.By, Key: key, Unset: v.Unset}
	if v.Run != "" {
		c.Run = &api.RunView{Run: v.Run, Job: v.Job, Node: v.Owner}
	}
	return c
}

// maxCauses is how many changes of one answer are compared. The compared changes are the latest ones.
const maxCauses = 100

// The method `causes` returns, in order, how the answer to a node's question has changed since the node got this
// answer.
func (t *trail) causes(ctx context.Context, node tutti.NodeName, q tutti.Query, since moment) ([]api.Cause, error) {
	var out []api.Cause
	if q.Kind == tutti.QueryCollect {
		return t.exporters(ctx, node, q, since)
	}
	if q.Own() {
		return t.movers(node, q, since), nil
	}
	for _, key := range pathsOf(node, q) {
		for _, v := range t.values[key] {
			if since.before(v.Seq, v.At) {
				out = append(out, causeOf(key, v))
			}
		}
	}
	slices.SortFunc(out, bySeq)
	return out[max(0, len(out)-maxCauses):], nil
}

// The method `exporters` returns the nodes that have changed the result of a collector.
func (t *trail) exporters(ctx context.Context, asker tutti.NodeName, q tutti.Query, since moment) ([]api.Cause, error) {
	type step struct {
		before *exportsChange // nil if there was no earlier set, or if it is not stored
		after  exportsChange
	}
	var steps []step
	for node, changes := range t.exports {
		for i, c := range changes {
			if node == asker || !since.before(c.event.Seq, c.event.At) {
				continue
			}
			s := step{after: c}
			if i > 0 {
				s.before = &changes[i-1]
			}
			steps = append(steps, s)
		}
	}
	slices.SortFunc(steps, func(a, b step) int { return cmp.Compare(a.after.event.Seq, b.after.event.Seq) })
	var out []api.Cause
	for _, s := range steps[max(0, len(steps)-maxCauses):] {
		e := s.after.event
		c := api.Cause{Seq: e.Seq, At: e.At, By: e.By, Unknown: s.before == nil && e.Seq <= t.through}
		if s.after.Run != "" {
			c.Run = &api.RunView{Run: s.after.Run, Job: s.after.Job, Node: s.after.Node}
		}
		if err := t.compare(ctx, &c, q, s.before, s.after); err != nil {
			return nil, err
		}
		if len(c.Added)+len(c.Removed)+len(c.Altered) > 0 {
			out = append(out, c)
		}
	}
	return out, nil
}

// The method `compare` adds to c the members of an answer that differ between two sets of exports.
func (t *trail) compare(ctx context.Context, c *api.Cause, q tutti.Query, before *exportsChange, after exportsChange) error {
	was := map[string]string{}
	var err error
	if before != nil {
		if was, err = t.matching(ctx, q, before.ExportsSet); tutti.CodeOf(err) == tutti.CodeNotFound {
			was, c.Unknown, err = nil, true, nil
		}
	}
	if err != nil {
		return err
	}
	is, err := t.matching(ctx, q, after.ExportsSet)
	if err != nil {
		if tutti.CodeOf(err) == tutti.CodeNotFound { // the set is old, and is not stored any more
			return nil
		}
		return err
	}
	for ref, text := range is {
		if old, had := was[ref]; !had {
			c.Added = append(c.Added, ref)
		} else if old != text {
			c.Altered = append(c.Altered, ref)
		}
	}
	for ref := range was {
		if _, has := is[ref]; !has {
			c.Removed = append(c.Removed, ref)
		}
	}
	for _, refs := range [][]string{c.Added, c.Removed, c.Altered} {
		slices.Sort(refs)
	}
	return nil
}

// The method `matching` returns those exports of a set that a collector finds, by reference.
func (t *trail) matching(ctx context.Context, q tutti.Query, set tutti.ExportsSet) (map[string]string, error) {
	out := map[string]string{}
	if set.Count == 0 {
		return out, nil
	}
	exports, known := t.sets[set.Set]
	if !known {
		raw, err := t.blobs.Get(ctx, set.Set)
		if err != nil {
			return nil, tutti.Wrap("", err, "exports of %s", set.Node)
		}
		if exports, err = data.DecodeExports(raw); err != nil {
			return nil, err
		}
		t.sets[set.Set] = exports
	}
	filter, err := data.ParseFilter(q.Filter)
	if err != nil {
		return nil, err
	}
	for _, e := range exports {
		if e.Type != q.Type || !filter.Match(e) {
			continue
		}
		e.File, e.Line = "", 0 // the file and the line do not belong to an answer
		text, err := json.Marshal(e)
		if err != nil {
			return nil, err
		}
		out[plain.Words(e.Ref())] = string(text)
	}
	return out, nil
}

func bySeq(a, b api.Cause) int { return cmp.Compare(a.Seq, b.Seq) }

// pathsOf returns the keys of the values that can answer a node's question.
func pathsOf(node tutti.NodeName, q tutti.Query) []string {
	switch q.Kind {
	case tutti.QueryValue:
		return []string{q.Key}
	case tutti.QueryHiera:
		return data.HieraPaths(node, q.Key)
	default:
		return nil
	}
}
