package data

import "github.com/tutti-project/tutti"

// Change is what changed the public answer to a question.
type Change struct {
	Event string         // its kind
	By    string         // who, as in the event
	Key   string         // of the value, empty for exports
	Node  tutti.NodeName // whose exports they are, or which node was removed
}

// changeOf is what an event changes; nil: it changes no answers.
func changeOf(e tutti.Event) *Change {
	c := Change{Event: e.Body.Kind(), By: e.By}
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
	default:
		return nil
	}
	return &c
}

// LastChange returns what changed the answer of a node to a question last. It returns false if
// this is not known: the change was before the node asked, or it is not in the kept
// part of the log. It is for people: no decision may depend on it.
func (s *State) LastChange(node tutti.NodeName, query tutti.Query) (Change, bool) {
	q := s.questions[identify(query)]
	if q == nil || q.change == nil {
		return Change{}, false
	}
	if of, _, hiera := hieraKey(q.change.Key); hiera && of != "" && of != node {
		return Change{}, false
	}
	return *q.change, true
}
