package operators

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

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

// The function `choose` returns the ticket of the only machine whose boot id or ticket digest has
// this prefix. The function also returns the tickets of the other machines.
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
		return "no machine has said hello yet; each machine says hello every half minute"
	}
	var out []string
	for _, m := range met {
		out = append(out, m.String())
	}
	return strings.Join(out, "; ")
}

const (
	defaultTokenTTL = time.Hour
	maxTokenTTL     = 30 * 24 * time.Hour
	maxTokenUses    = 10_000
)

// CreateToken implements tutti.Tokens.
func (s *Keys) CreateToken(ctx context.Context, in api.CreateToken) (api.CreatedToken, error) {
	in.TTL = cmp.Or(in.TTL, defaultTokenTTL)
	if tutti.NodeName(strings.ReplaceAll(in.Name, "*", "x")).Validate() != nil {
		return api.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "name pattern %q: a node's name (lower-case letters, digits, '.', '_' and '-'), in which * stands for any of them", in.Name)
	}
	if in.TTL < time.Second || in.TTL > maxTokenTTL {
		return api.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "ttl %s: from 1s to %s", in.TTL, maxTokenTTL)
	}
	in.Uses = cmp.Or(in.Uses, 1)
	if in.Uses < 1 || in.Uses > maxTokenUses {
		return api.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "uses %d: from 1 to %d", in.Uses, maxTokenUses)
	}
	if in.Uses > 1 && !strings.Contains(in.Name, "*") {
		return api.CreatedToken{}, tutti.Errorf(tutti.CodeInvalid, "a token for %d machines needs a pattern with * as its name, because each machine has its own name", in.Uses)
	}
	for _, g := range in.Groups {
		if err := g.Validate(); err != nil {
			return api.CreatedToken{}, err
		}
	}
	if err := s.Opts.Space(); err != nil {
		return api.CreatedToken{}, err
	}
	text, id, hash, err := s.Opts.Identity.NewToken(in)
	if err != nil {
		return api.CreatedToken{}, err
	}
	out := api.CreatedToken{Token: id, Text: text}
	err = s.lasting(ctx, "make a token for "+in.Name, func(tx *tx) error {
		if err := tx.NoGroup(in.Name); err != nil {
			return err
		}
		for _, g := range tx.Fleet().Groups { // a group that the fleet file lacks may come later
			if slices.Contains(in.Groups, g.Name) && g.Trusted != "" {
				return tutti.Errorf(tutti.CodeInvalid, "group %s: the certificate of a node decides whether it is in it; a token can name groups with `joined: true`", g.Name)
			}
			if slices.Contains(in.Groups, g.Name) && !g.Gives() {
				return tutti.Errorf(tutti.CodeInvalid, "group %s: its `where` decides whether a node is in it; a token can name groups with `joined: true`", g.Name)
			}
		}
		out.Expires = tx.Now.Add(in.TTL).UTC()
		tx.Emit(tutti.Actor(ctx), &tutti.TokenCreated{Token: id, Hash: hash, Name: in.Name, Groups: in.Groups, Expires: out.Expires, Uses: usesOf(in)})
		return nil
	})
	return out, err
}

// usesOf returns the value for the event of a new token. A token for one machine has no value, as in earlier releases.
func usesOf(in api.CreateToken) int {
	if in.Uses == 1 {
		return 0
	}
	return in.Uses
}

// ReplaceNode implements tutti.Nodes.
func (s *Operators) ReplaceNode(ctx context.Context, name tutti.NodeName) error {
	return s.lasting(ctx, "replace node "+string(name), func(tx *tx) error {
		n := tx.Registry.Nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		if !n.Replaceable {
			tx.Emit(tutti.Actor(ctx), &tutti.NodeReplaceable{Node: name})
		}
		return nil
	})
}

// RemoveNode implements tutti.Nodes.
func (s *Operators) RemoveNode(ctx context.Context, name tutti.NodeName) error {
	var key tutti.NodeKey
	err := s.lasting(ctx, "remove node "+string(name), func(tx *tx) error {
		n := tx.Registry.Nodes[name]
		if n == nil {
			return tutti.Errorf(tutti.CodeNotFound, "no node %q; see: tutti node list", string(name))
		}
		key = n.Key
		tx.Leave(tutti.Actor(ctx), n, "the node was removed from the fleet")
		tx.Emit(tutti.Actor(ctx), &tutti.NodeRemoved{Node: name})
		return nil
	})
	if err != nil {
		return err
	}
	return s.Opts.Identity.Revoke(key)
}
