package explain

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
)

// The method `movers` returns, in order, the events that have changed a node's own answer (see Query.Own) since it read
// the answer.
func (t *trail) movers(node tutti.NodeName, q tutti.Query, since moment) []api.Cause {
	out := t.regroupings(node, since)
	if q.Kind == tutti.QueryENC {
		out = nil
		for _, e := range t.members {
			if b, is := e.Body.(*tutti.NodeClassified); is && b.Node == node && since.before(e.Seq, e.At) {
				out = append(out, api.Cause{Seq: e.Seq, At: e.At, By: e.By, ENC: true})
			}
		}
	}
	return out[max(0, len(out)-maxCauses):]
}

func (t *trail) regroupings(node tutti.NodeName, since moment) []api.Cause {
	var out []api.Cause
	var members fleet.Membership
	var joined *tutti.NodeEnrolled
	var was []tutti.GroupName
	for _, e := range t.members {
		switch b := e.Body.(type) {
		case *tutti.FleetSet:
			members = fleet.NewMembership(b.Fleet)
		case *tutti.NodeEnrolled:
			if b.Node != node {
				continue
			}
			joined = b
		}
		if joined == nil {
			continue
		}
		is := members.GroupsOf(node, joined.Groups, members.Trusted(node, joined.Certificate))
		if !slices.Equal(was, is) && since.before(e.Seq, e.At) {
			c := api.Cause{Seq: e.Seq, At: e.At, By: e.By, Groups: true, Added: without(is, was), Removed: without(was, is)}
			out = append(out, c)
		}
		was = is
	}
	return out
}

// The function `without` returns the groups of the first list that are not in the second list.
func without(groups, other []tutti.GroupName) []string {
	var out []string
	for _, g := range groups {
		if !slices.Contains(other, g) {
			out = append(out, string(g))
		}
	}
	return out
}
