package data

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Change describes the event that changed the public answer to a question.
type Change struct {
	Event string         // kind of the event
	By    string         // the actor named in the event
	Key   string         // key of the value, empty for exports
	Node  tutti.NodeName // node whose exports changed, or node that joined, was classified or was removed
	Seq   uint64         // sequence of the event
	At    time.Time      // time of the event
}

// changeOf returns the Change for an event, or nil if the event changes no answers.
func changeOf(e tutti.Event) *Change {
	c := Change{Event: e.Body.Kind(), By: e.By, Seq: e.Seq, At: e.At}
	switch b := e.Body.(type) {
	case *tutti.ValueSet:
		c.Key = b.Key
	case *tutti.ValueUnset:
		c.Key = b.Key
	case *tutti.SecretSealed:
		c.Key = b.Key
	case *tutti.ExportsSet:
		c.Node = b.Node
	case *tutti.NodeRemoved:
		c.Node = b.Node
	case *tutti.NodeEnrolled:
		c.Node = b.Node
	case *tutti.NodeClassified:
		c.Node = b.Node
	case *tutti.FleetSet: // a fleet file can change the groups of nodes
	default:
		return nil
	}
	return &c
}

// LastChange returns the last change of a node's answer to a question. LastChange returns
// false if the change is not known. The change may have happened before the node asked, or in
// a part of the log that was dropped. The result is only for people, and no decision may
// depend on it.
func (s *State) LastChange(node tutti.NodeName, query tutti.Query) (Change, bool) {
	q := s.questions[identify(query)]
	if q == nil || q.change == nil {
		return Change{}, false
	}
	if of, _, hiera := hieraKey(q.change.Key); hiera && of != "" && of != node {
		return Change{}, false
	}
	if q.Query.Own() && q.change.Node != "" && q.change.Node != node {
		return Change{}, false // the last change was about another node
	}
	return *q.change, true
}
