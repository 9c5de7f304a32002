package fold

import (
	"time"

	"github.com/tutti-project/tutti"
)

// serverActor is the actor of the server's own events.
const serverActor = "server"

// Asking is a machine that has asked to join with its Puppet certificate and has not joined, with an operator's decision
// about this machine.
type Asking struct {
	tutti.NodePending
	At       time.Time           // when the machine first asked
	Approved *tutti.NodeApproved // nil if no operator has approved the machine
	Rejected bool
}

func (r *Registry) applyJoin(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.JoinCASet:
		r.JoinCA = *b
	case *tutti.NodePending:
		if r.Asking[b.Node] == nil {
			r.Asking[b.Node] = map[tutti.Digest]*Asking{}
		}
		at := e.At
		if a := r.Asking[b.Node][b.Certificate.Key]; a != nil { // the machine has a newer certificate now
			at = a.At
		}
		r.Asking[b.Node][b.Certificate.Key] = &Asking{NodePending: *b, At: at}
	case *tutti.NodeApproved:
		if a := r.Asking[b.Node][b.Key]; a != nil {
			a.Approved, a.Rejected = b, false
		}
	case *tutti.NodeRejected:
		if a := r.Asking[b.Node][b.Key]; a != nil {
			a.Approved, a.Rejected = nil, true
		}
	case *tutti.NodeEnrolled:
		if b.Certificate != nil {
			delete(r.Asking[b.Node], b.Certificate.Key)
		}
		delete(r.removed, b.Node)
	case *tutti.NodeRemoved:
		if b.Replaced {
			return
		}
		for _, a := range r.Asking[b.Node] { // an approval from the time before the removal does not count
			a.Approved = nil
		}
		// The server itself removes only nodes that are silent. Such a node may come back.
		if e.By != serverActor {
			r.removed[b.Node] = true
		}
	}
}

// Removed reports whether an operator removed the last node of this name, or the node left.
func (r *Registry) Removed(name tutti.NodeName) bool { return r.removed[name] }
