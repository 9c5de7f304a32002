package httpapi

import (
	"net"
	"slices"
	"sync"
	"sync/atomic"
)

// crowd is a bounded set of connections. Clients without a certificate are counted by address, and operators by
// name. If one more connection comes, the crowd ends the oldest connection of the source that has the most, so that
// honest clients get in. It first ends connections that have not come far.
type crowd struct {
	most int

	mu       sync.Mutex
	bySource map[string][]*guest // the oldest first
	total    int                 // in bySource
	closed   bool
}

// guest is a connection of a crowd.
type guest struct {
	net.Conn
	from string // changes only while the guest is in no crowd
	said int    // how many bytes the client has sent, up to hello

	place atomic.Pointer[chan struct{}] // where the connection has a place while its hello is answered; nil: it has none

	mu sync.Mutex
	in *crowd // nil: the guest is in no crowd
	// far protects the guest while there are others without it. It is set when the client has sent its hello or its whole request, or
	// while an operator's request is served on the connection. Under the crowd's lock.
	far    bool
	served int // how many operator's requests are served now, also under the crowd's lock
}

func newCrowd(most int) *crowd { return &crowd{most: most, bySource: map[string][]*guest{}} }

// enter adds a connection. If there is no room, it ends another one.
func (c *crowd) enter(g *guest) {
	g.mu.Lock()
	g.in = c
	g.mu.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	if g.far = false; c.total >= c.most {
		c.expel()
	}
	c.bySource[g.from] = append(c.bySource[g.from], g)
	c.total++
	if c.closed {
		g.Conn.Close()
	}
}

// expel ends the oldest connection of the source that has the most. If some of these have not come
// far, it ends the oldest of them.
func (c *crowd) expel() {
	var most string
	for from, guests := range c.bySource {
		if len(guests) > len(c.bySource[most]) {
			most = from
		}
	}
	who := max(0, slices.IndexFunc(c.bySource[most], func(g *guest) bool { return !g.far }))
	oldest := c.bySource[most][who]
	oldest.Conn.Close()
	c.remove(oldest)
}

// remove forgets a connection, if it is known.
func (c *crowd) remove(g *guest) {
	i := slices.Index(c.bySource[g.from], g)
	if i < 0 {
		return
	}
	c.total--
	if c.bySource[g.from] = slices.Delete(c.bySource[g.from], i, i+1); len(c.bySource[g.from]) == 0 {
		delete(c.bySource, g.from)
	}
}

// close ends all present and future connections.
func (c *crowd) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, guests := range c.bySource {
		for _, g := range guests {
			g.Conn.Close()
		}
	}
}

// leave takes the connection out of its crowd.
func (g *guest) leave() {
	g.mu.Lock()
	c := g.in
	g.in = nil
	g.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.remove(g)
}

// came marks that the connection has come far.
func (g *guest) came() {
	g.inside(func() { g.far = true })
}

// serves adds by to the number of served requests. While it is above zero, the connection counts as far.
func (g *guest) serves(by int) {
	g.inside(func() {
		g.served += by
		g.far = g.served > 0
	})
}

// inside calls do under the lock of the connection's crowd. If the connection is in no crowd, it does nothing.
func (g *guest) inside(do func()) {
	g.mu.Lock()
	c := g.in
	g.mu.Unlock()
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	do()
}

// hello is the minimum size of a client's first message, in bytes.
const hello = 100

// Read counts the bytes that the client sends.
func (g *guest) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.said < hello && g.said+n >= hello {
		g.came()
	}
	g.said = min(g.said+n, hello)
	return n, err
}

// Write sends the answer to the hello, or what comes after it.
func (g *guest) Write(p []byte) (int, error) {
	g.computed()
	return g.Conn.Write(p)
}

// computed gives the place to another hello.
func (g *guest) computed() {
	if place := g.place.Swap(nil); place != nil {
		<-*place
	}
}

// Close makes room in the crowd for another connection.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}
