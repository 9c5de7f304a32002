package embed

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// halfOpen is how many connections the bus may have at once that have not yet shown who they are. It is more than a
	// fleet has that comes back at once from one address, and so few that the server does not run out of file
	// descriptors.
	halfOpen = 4096
	// alwaysOpen is how many connections one source may always have, no matter how many others there are.
	alwaysOpen = 64
	guardEvery = 20 * time.Millisecond
)

// GuardOptions are called with what the guard sees.
type GuardOptions struct {
	// Refused: count connections of a source were ended because they had not shown who they are.
	Refused func(from string, count int)
	// Violated: a client that connected with a JWT used a subject that it may not use. The JWT is empty if the
	// connection is gone and forgotten.
	Violated func(jwt, what string)
}

// Guard keeps clients that connect and do not say who they are from filling the bus, until ctx ends. If there are too
// many, the sources with the most are cut to an equal share. The youngest connections of a source stay, so that honest
// clients get in. The others are ended.
//
// A bound for each source alone does not work. A low one would hold up a fleet that comes back from behind one address.
// A high one would let a few sources fill the bus.
//
// NATS accepts connections itself, so Guard polls. It first looks at one number only. A listener of ours in front of
// NATS, with in-process connections, would cost two goroutines, two buffers and a copy for every node for ever.
func (s *Server) Guard(ctx context.Context, o GuardOptions) {
	ticker := time.NewTicker(guardEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-s.violations:
			o.Violated(s.jwtOf(v.id), v.what)
		case <-ticker.C:
			// A connection that has not shown who it is counts to the global account.
			if s.nats.GlobalAccount().NumLocalConnections() > s.halfOpen {
				s.expel(o.Refused)
			}
		}
	}
}

// jwtOf returns the JWT that a connection has shown, also if the connection was closed lately.
func (s *Server) jwtOf(id uint64) string {
	list, err := s.nats.Connz(&server.ConnzOptions{CID: id, Username: true, State: server.ConnAll})
	if err != nil || len(list.Conns) == 0 {
		return ""
	}
	return list.Conns[0].JWT
}

func (s *Server) expel(refused func(from string, count int)) {
	account := s.nats.GlobalAccount()
	list, err := s.nats.Connz(&server.ConnzOptions{Account: account.GetName(), Limit: account.NumLocalConnections() + s.halfOpen})
	if err != nil {
		return // the caller asks again soon
	}
	sources := map[string][]*server.ConnInfo{}
	for _, c := range list.Conns {
		sources[c.IP] = append(sources[c.IP], c)
	}
	counts := make([]int, 0, len(sources))
	for _, conns := range sources {
		counts = append(counts, len(conns))
	}
	stay := share(s.halfOpen, counts)
	for from, conns := range sources {
		if len(conns) <= stay {
			continue
		}
		slices.SortFunc(conns, func(a, b *server.ConnInfo) int { return cmp.Compare(b.Cid, a.Cid) })
		for _, c := range conns[stay:] {
			_ = s.nats.DisconnectClientByID(c.Cid) // if this fails, it has gone or has shown who it is
		}
		refused(from, len(conns)-stay)
	}
}

// share is how many connections of each source may stay. It is the largest number for which all sources together stay
// within most, given that some have fewer. It is never below alwaysOpen.
func share(most int, counts []int) int {
	slices.Sort(counts)
	left := most
	for i, n := range counts {
		if each := left / (len(counts) - i); n > each {
			return max(each, alwaysOpen)
		}
		left -= n
	}
	return most
}

// Disconnect ends a connection by its number on the bus.
func (s *Server) Disconnect(id uint64) error { return s.nats.DisconnectClientByID(id) }
