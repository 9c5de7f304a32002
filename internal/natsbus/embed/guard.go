package embed

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// halfOpen is how many connections may be in front of the bus at once that have
	// not yet shown who they are: more than a fleet behind one address has that
	// comes back at once, and than the server has file descriptors to fear for.
	halfOpen = 4096
	// alwaysOpen is how many of one source may, however many others there are.
	alwaysOpen = 64
	guardEvery = 20 * time.Millisecond
)

// GuardOptions are told what the guard sees.
type GuardOptions struct {
	// Refused: of a source so many connections were ended that had not shown who
	// they are.
	Refused func(from string, count int)
	// Violated: whoever connected with a JWT used a subject that he may not. The JWT
	// is empty if the connection is gone and forgotten.
	Violated func(jwt, what string)
}

// Guard keeps those who connect and do not say who they are from filling the bus,
// until ctx ends. When they are too many, those sources that have the most are cut
// to an equal share. Of a source the youngest stay, so that whoever means it gets
// in; the others are ended.
//
// A bound for each source alone would be either low, and hold a fleet up that comes
// back from behind one address, or high, and let a few sources fill the bus.
//
// NATS accepts by itself, so this looks again and again, first at a number alone.
// A listener of ours in front of it (in-process connections behind it) would cost
// two goroutines, two buffers and a copy for every node for ever.
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
			// Who has not shown who he is counts to the global account.
			if s.nats.GlobalAccount().NumLocalConnections() > s.halfOpen {
				s.expel(o.Refused)
			}
		}
	}
}

// jwtOf returns what a connection, also one that was closed lately, has shown.
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
		return // asked again soon
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
			_ = s.nats.DisconnectClientByID(c.Cid) // gone, or shown who he is meanwhile
		}
		refused(from, len(conns)-stay)
	}
}

// share is how many connections of each source may stay: as many as make most in
// all, given that some sources have fewer.
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

// Disconnect ends a connection, known by the number that the bus gave it.
func (s *Server) Disconnect(id uint64) error { return s.nats.DisconnectClientByID(id) }
