package fold

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Asking is a machine that has asked to join with its Puppet certificate and has not joined, or an operator's decision
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
		r.Asking[b.Node] = &Asking{NodePending: *b, At: e.At}
	case *tutti.NodeApproved:
		if a := r.Asking[b.Node]; a != nil {
			a.Approved, a.Rejected = b, false
		}
	case *tutti.NodeRejected:
		if a := r.Asking[b.Node]; a != nil {
			a.Approved, a.Rejected = nil, true
		}
	case *tutti.NodeEnrolled:
		delete(r.Asking, b.Node)
		delete(r.removed, b.Node)
	case *tutti.NodeRemoved:
		if !b.Replaced {
			r.removed[b.Node] = true
		}
	}
}

// Removed reports whether an operator removed the last node of this name, or the node left.
func (r *Registry) Removed(name tutti.NodeName) bool { return r.removed[name] }
