package operators

import (
	"context"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// KeepNode implements tutti.Nodes.
func (s *Operators) KeepNode(ctx context.Context, in api.KeepNode) error {
	return s.lasting(ctx, "keep node "+string(in.Node), func(tx *tx) error {
		n := tx.Registry.Nodes[in.Node]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(in.Node))
		}
		met := s.Presence.Machines(in.Node)
		body := &tutti.NodeKept{Node: in.Node, Out: n.Tickets.Out}
		switch {
		case in.Boot != "":
			kept, others, err := choose(met, in.Boot)
			if err != nil {
				return err
			}
			body.Ticket, body.Out = kept, others
		case n.Tickets.Conflicted != "":
			return tutti.Errorf(tutti.CodeInvalid, "two machines are node %s: say which one it is: %s", in.Node, describeMachines(met))
		}
		tx.Emit(tutti.Actor(ctx), body)
		tx.Core.RingHello(n.Key)
		return nil
	})
}

// choose returns the ticket of the machine whose boot id, or whose ticket's digest, begins so, and
// those of the others.
func choose(met []tutti.Machine, begins string) (kept tutti.Digest, others []tutti.Digest, err error) {
	for _, m := range met {
		_, ticket, _ := strings.Cut(string(m.Ticket), ":")
		switch {
		case !strings.HasPrefix(m.Boot, begins) && !strings.HasPrefix(ticket, begins):
			others = append(others, m.Ticket)
		case kept != "":
			return "", nil, tutti.Errorf(tutti.CodeInvalid, "%q fits more than one machine: %s", begins, describeMachines(met))
		default:
			kept = m.Ticket
		}
	}
	if kept == "" {
		return "", nil, tutti.Errorf(tutti.CodeNotFound, "no machine with %q has said hello since the server was started: %s", begins, describeMachines(met))
	}
	return kept, others, nil
}

func describeMachines(met []tutti.Machine) string {
	if len(met) == 0 {
		return "none has; they say it every half minute"
	}
	var out []string
	for _, m := range met {
		out = append(out, m.String())
	}
	return strings.Join(out, "; ")
}
