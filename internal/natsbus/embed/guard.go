package embed

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

const (
	// halfOpen limits the connections whose clients have not authenticated yet. The number is larger than a whole
	// fleet that connects at once from one address. The number is small enough that the server does not run out of
	// file descriptors.
	halfOpen = 4096
	// afterTLS limits the connections that have finished TLS, but whose clients have not authenticated
	// yet. Each such connection takes about 40 KB. A node authenticates directly after TLS.
	afterTLS = 1024
	// afterTLSEvery is the pause between two checks of afterTLS. It is longer than guardEvery, because
	// NATS does not count the connections after TLS, and Guard has to read the list of all connections.
	afterTLSEvery = 100 * time.Millisecond
	// alwaysOpen is how many connections one source may always have, even if many other sources connect.
	alwaysOpen = 64
	guardEvery = 20 * time.Millisecond
	// mostUnread is how many bytes a client may leave unread. A node has at most 16 calls at once, and each answer
	// has at most 128 KiB. So even a node with a slow connection leaves at most 2 MiB unread.
	mostUnread = 4 << 20
	// Guard looks at the unread bytes of all connections. The pause between two looks is
	// unreadEveryEach multiplied by the number of connections, but at least unreadEvery.
	unreadEvery     = time.Second
	unreadEveryEach = 200 * time.Microsecond
	// unreadAtOnce is how many clients Guard finds at most in one look.
	unreadAtOnce = 64
)

// GuardOptions are functions that Guard calls when it finds something.
type GuardOptions struct {
	// Guard calls Refused after it closed connections of one source because their clients had not
	// authenticated. The argument `what` says what the clients have not done. The argument `count` is the number of
	// closed connections.
	Refused func(from, what string, count int)
	// Guard calls Violated if a client with a JWT used a subject that the client may not use. The JWT is empty if the
	// connection is closed and the bus no longer knows it.
	Violated func(jwt, what string)
	// Guard calls Unread about each client that leaves more than 4 MiB of messages unread. The JWT may belong to one of
	// the server's own connections.
	Unread func(jwt string)
}

// Guard limits the connections of clients that do not authenticate. Without Guard, such clients could use up all
// connections. Guard runs until ctx ends. If there are too many such connections, Guard closes connections of the
// sources that have the most connections. After that, these sources all have the same number of connections. Guard
// closes the oldest connections of a source first, so honest clients still get in.
//
// A fixed limit for each source alone would not work. A low limit would block a fleet whose nodes all connect from
// one address. A high limit would let a few sources use up all connections.
//
// NATS accepts connections itself, so Guard must poll. To save work, Guard first reads only the
// number of connections. It reads the list of connections only if the number is too large. We could
// instead put our own listener before NATS and use in-process connections. But our own listener
// would permanently cost two goroutines, two buffers and a copy for every node.
func (s *Server) Guard(ctx context.Context, o GuardOptions) {
	ticker, look, lookAfterTLS := time.NewTicker(guardEvery), time.Now(), time.Now()
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case v := <-s.violations:
			o.Violated(s.jwtOf(v.id), v.what)
		case now := <-ticker.C:
			// NATS counts a connection in the global account until the client has authenticated.
			all := s.nats.GlobalAccount().NumLocalConnections()
			if all > s.halfOpen {
				s.expel(s.halfOpen, inTLS, o.Refused)
			} else if all > s.afterTLS && !now.Before(lookAfterTLS) {
				s.expel(s.afterTLS, hasTLS, o.Refused)
				lookAfterTLS = time.Now().Add(afterTLSEvery)
			}
			if !now.Before(look) {
				look = now.Add(max(unreadEvery, time.Duration(s.unread(o.Unread))*unreadEveryEach))
			}
		}
	}
}

// The method `unread` calls the function `found` for each client that leaves more than mostUnread
// bytes unread. It returns the number of all connections.
func (s *Server) unread(found func(jwt string)) (all int) {
	list, err := s.nats.Connz(&server.ConnzOptions{Sort: server.ByPending, Limit: unreadAtOnce, Username: true})
	if err != nil {
		return 0 // Guard calls unread again soon
	}
	for _, c := range list.Conns {
		if c.Pending > mostUnread {
			found(c.JWT)
		}
	}
	return list.Total
}

// jwtOf returns the JWT that a client sent on a connection. jwtOf also works for a connection that was closed
// recently.
func (s *Server) jwtOf(id uint64) string {
	list, err := s.nats.Connz(&server.ConnzOptions{CID: id, Username: true, State: server.ConnAll})
	if err != nil || len(list.Conns) == 0 {
		return ""
	}
	return list.Conns[0].JWT
}

// phase is a group of connections whose clients have not authenticated yet.
type phase struct {
	what string // what the clients have not done
	has  func(*server.ConnInfo) bool
}

var (
	inTLS  = phase{"finish TLS with the nodes' port", func(*server.ConnInfo) bool { return true }}
	hasTLS = phase{"authenticate with the nodes' port", func(c *server.ConnInfo) bool { return c.TLSVersion != "" }}
)

// expel closes connections of this phase until only `most` are left.
func (s *Server) expel(most int, of phase, refused func(from, what string, count int)) {
	account := s.nats.GlobalAccount()
	list, err := s.nats.Connz(&server.ConnzOptions{Account: account.GetName(), Limit: account.NumLocalConnections() + s.halfOpen})
	if err != nil {
		return // the caller calls expel again soon
	}
	sources := map[string][]*server.ConnInfo{}
	for _, c := range list.Conns {
		if !of.has(c) {
			continue
		}
		sources[c.IP] = append(sources[c.IP], c)
	}
	counts := make([]int, 0, len(sources))
	for _, conns := range sources {
		counts = append(counts, len(conns))
	}
	stay := share(most, counts)
	for from, conns := range sources {
		if len(conns) <= stay {
			continue
		}
		slices.SortFunc(conns, func(a, b *server.ConnInfo) int { return cmp.Compare(b.Cid, a.Cid) })
		for _, c := range conns[stay:] {
			// on failure, the connection is already closed or its client has authenticated
			_ = s.nats.DisconnectClientByID(c.Cid)
		}
		refused(from, of.what, len(conns)-stay)
	}
}

// The function `share` returns how many connections each source may keep. The result is the
// largest limit with which all sources together keep at most `most` connections, but at least
// alwaysOpen.
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

// Disconnect closes the connection with this number.
func (s *Server) Disconnect(id uint64) error { return s.nats.DisconnectClientByID(id) }
