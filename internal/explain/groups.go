package explain

import (
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/fleet"
)

// The method `movers` returns, in order, the events that have changed the groups of a node since it read them.
func (t *trail) movers(node tutti.NodeName, since moment) []api.Cause {
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
	return out[max(0, len(out)-maxCauses):]
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
