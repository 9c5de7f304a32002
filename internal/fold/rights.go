package fold

import (
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
	"github.com/tutti-project/tutti/internal/policy"
)

// Rights has the rights of operators, according to the audit trail. Rights sees only the events of the
// trail. The zero value is the state before the first event.
type Rights struct {
	operators Operators
	fleet     tutti.Fleet
	members   fleet.Membership
	joined    map[tutti.NodeName]*tutti.NodeEnrolled
}

// Right is one right of an operator.
type Right struct {
	Operator string         `json:"operator"`
	Ends     time.Time      `json:"certificate_ends"`
	By       []tutti.Access `json:"by,omitempty"` // empty if the fleet file had no access list
}

// Apply folds the next event of the trail.
func (r *Rights) Apply(e tutti.Event) {
	if r.operators == nil {
		r.operators, r.joined = Operators{}, map[tutti.NodeName]*tutti.NodeEnrolled{}
	}
	r.operators.Apply(e)
	switch b := e.Body.(type) {
	case *tutti.FleetSet:
		r.fleet, r.members = b.Fleet, fleet.NewMembership(b.Fleet)
	case *tutti.NodeEnrolled:
		r.joined[b.Node] = b
	case *tutti.NodeRemoved:
		delete(r.joined, b.Node)
	}
}

// Could returns the operators who had a valid certificate and the right to use a verb at the time `at`, sorted by
// name. The target is a node, or a key for VerbData. If the target is empty, the result has the operators who could
// use the verb for at least one target. Could returns CodeNotFound if the node did not exist.
func (r *Rights) Could(verb tutti.Verb, target string, at time.Time) ([]Right, error) {
	w := policy.Wish{Verbs: []tutti.Verb{verb}}
	switch node := tutti.NodeName(target); {
	case target == "":
	case verb == tutti.VerbData:
		w.Narrow, w.Key = true, target
	default:
		n, known := r.joined[node]
		if !known {
			return nil, tutti.Errorf(tutti.CodeNotFound, "according to the trail, no node %q had joined at %s", target, at.Format(time.RFC3339))
		}
		w.Nodes = []policy.Target{{Node: node, Groups: r.members.GroupsOf(node, n.Groups, r.members.Trusted(node, n.Certificate))}}
		w.Narrow = true
	}
	var out []Right
	for _, name := range slices.Sorted(maps.Keys(r.operators)) {
		ends := r.operators[name].Good(at)
		if len(ends) == 0 {
			continue
		}
		if verb == tutti.VerbRun && w.Narrow { // a right to run only one plan, or only noop runs, is enough
			if by := r.runs(name, w); by != nil || len(r.fleet.Access) == 0 {
				out = append(out, Right{Operator: name, Ends: slices.MaxFunc(ends, time.Time.Compare), By: by})
			}
			continue
		}
		if by, err := policy.Admits(r.fleet, name, w); err == nil {
			out = append(out, Right{Operator: name, Ends: slices.MaxFunc(ends, time.Time.Compare), By: by})
		}
	}
	return out, nil
}

// The method `runs` returns the access entries that allow an operator to run something on the nodes of a wish.
func (r *Rights) runs(operator string, w policy.Wish) []tutti.Access {
	var out []tutti.Access
	for _, a := range r.fleet.Access {
		w := w
		w.Noop = true
		if len(a.Plans) > 0 {
			w.Plan = a.Plans[0]
		}
		one := tutti.Fleet{Access: []tutti.Access{a}}
		if by, err := policy.Admits(one, operator, w); err == nil {
			out = append(out, by...)
		}
	}
	return out
}
