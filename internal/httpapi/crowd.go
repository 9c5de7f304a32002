package httpapi

import (
	"net"
	"slices"
	"sync"
)

// crowd is a set of connections with a limit. crowd counts clients without a certificate by address, and operators
// by name. If a new connection exceeds the limit, the crowd closes the oldest connection of the source with the most
// connections. Therefore honest clients still get a connection. A crowd prefers to close connections that have made
// little progress.
type crowd struct {
	most int

	mu       sync.Mutex
	bySource map[string][]*guest // the oldest first
	total    int                 // in bySource
	closed   bool
}

// guest is one connection in a crowd.
type guest struct {
	net.Conn
	from string // changes only while the guest is not in a crowd
	said int    // number of bytes that the client has sent; the count stops at the constant hello

	turns *turns // not nil during the handshake; only the handshake uses it

	mu sync.Mutex
	in *crowd // nil if the guest is not in a crowd
	// far is set when the client has sent its TLS hello or its whole request. `far` is also set while
	// the server handles an operator's request on the connection. The crowd first closes connections
	// whose field `far` is not set. The crowd's lock guards `far`.
	far    bool
	served int // number of operators' requests that run now; the crowd's lock guards it
}

func newCrowd(most int) *crowd { return &crowd{most: most, bySource: map[string][]*guest{}} }

// The method `enter` adds a connection. If there is no room, the method closes another connection.
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

// expel closes the oldest connection of the source that has the most connections. If this source has connections
// whose field `far` is not set, expel closes the oldest of these.
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

// The method `remove` removes a connection if the crowd contains it.
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

// The method `close` closes all connections. After that, the crowd closes each new connection at once.
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

// The method `leave` removes the connection from its crowd.
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

// The method `came` sets the field `far` of the connection.
func (g *guest) came() {
	g.inside(func() { g.far = true })
}

// The method `serves` adds the argument `by` to the number of running requests. While this number is above
// zero, the field `far` is set.
func (g *guest) serves(by int) {
	g.inside(func() {
		g.served += by
		g.far = g.served > 0
	})
}

// The method `inside` locks the crowd of the connection and calls the function `do`. If the connection is not in
// a crowd, the method does nothing.
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

// Read counts the bytes that the client has sent. During the handshake, Read returns the bytes only
// after the handshake has got a place (see turns).
func (g *guest) Read(p []byte) (int, error) {
	g.turns.waits()
	n, err := g.Conn.Read(p)
	if g.said < hello && g.said+n >= hello {
		g.came()
	}
	g.said = min(g.said+n, hello)
	if wait := g.turns.computes(); wait != nil {
		return 0, wait
	}
	return n, err
}

// Write also frees the place of a handshake.
func (g *guest) Write(p []byte) (int, error) {
	g.turns.waits()
	return g.Conn.Write(p)
}

// Close removes the connection from its crowd, and so makes room for another connection.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}
