package report

import (
	"cmp"
	"maps"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The following constants limit the collected changes of many reports.
const (
	maxSame      = 1000    // changes that are listed separately
	maxSameBytes = 4 << 20 // bytes of their texts
)

// Same collects the changes and failures of many reports. Equal changes are collected once. The zero value is empty.
type Same struct {
	changes map[key]*same
	bytes   int
	leftOut int
}

// key has the fields that are the same in equal changes.
type key struct {
	resource, outcome, property, old, new, message string
	corrective, redacted                           bool
}

type same struct {
	place tutti.Place
	nodes map[tutti.NodeName]bool
}

// Add adds the report of a node.
func (s *Same) Add(node tutti.NodeName, r api.Report) {
	s.leftOut += r.LeftOut
	for _, st := range r.Resources {
		said := false
		for _, e := range st.Events {
			k := key{resource: st.Resource, property: e.Property, old: e.Old, new: e.New, corrective: e.Corrective, redacted: e.Redacted}
			switch e.Status {
			case "success":
				k.outcome = api.ResourceChanged
			case "noop":
				k.outcome = api.ResourceOutOfSync
			case "failure":
				said = true
				k = key{resource: st.Resource, outcome: api.ResourceFailed, message: tutti.WithoutJournal(e.Message)}
			default: // an audit event changes nothing
				continue
			}
			if k.old == "" && k.new == "" {
				k.message = e.Message
			}
			s.add(node, k, st.Place)
		}
		if st.Outcome == api.ResourceFailed && !said {
			s.add(node, key{resource: st.Resource, outcome: api.ResourceFailed, message: cmp.Or(tutti.WithoutJournal(st.Message), "failed without a message")}, st.Place)
		}
	}
}

func (s *Same) add(node tutti.NodeName, k key, place tutti.Place) {
	c := s.changes[k]
	if c == nil {
		n := len(k.resource) + len(k.property) + len(k.old) + len(k.new) + len(k.message) + len(place.File)
		if len(s.changes) == maxSame || s.bytes+n > maxSameBytes {
			s.leftOut++
			return
		}
		if s.changes == nil {
			s.changes = map[key]*same{}
		}
		c = &same{place: place, nodes: map[tutti.NodeName]bool{}}
		s.changes[k], s.bytes = c, s.bytes+n
	}
	c.nodes[node] = true
}

// ranks is the order of the outcomes in the result.
var ranks = map[string]int{api.ResourceFailed: 0, api.ResourceChanged: 1, api.ResourceOutOfSync: 2}

// Changes returns the collected changes. Failures come first, then the changes on the largest number of nodes. Changes
// also returns how many changes had no room.
func (s *Same) Changes() (changes []api.SameChange, leftOut int) {
	for k, c := range s.changes {
		changes = append(changes, api.SameChange{
			Resource: k.resource, Outcome: k.outcome, Property: k.property, Old: k.old, New: k.new, Message: k.message,
			Corrective: k.corrective, Redacted: k.redacted, Place: c.place, Nodes: slices.Sorted(maps.Keys(c.nodes)),
		})
	}
	slices.SortFunc(changes, func(a, b api.SameChange) int {
		return cmp.Or(
			cmp.Compare(ranks[a.Outcome], ranks[b.Outcome]), cmp.Compare(len(b.Nodes), len(a.Nodes)), cmp.Compare(a.Resource, b.Resource),
			cmp.Compare(a.Property, b.Property), cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New), cmp.Compare(a.Message, b.Message),
			slices.Compare(a.Nodes, b.Nodes), compareBool(b.Corrective, a.Corrective), compareBool(b.Redacted, a.Redacted),
		)
	})
	return changes, s.leftOut
}

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return 1
	}
	return -1
}
