package httpapi

import (
	"net"
	"slices"
	"sync"
)

// crowd is connections of which only so many may be there at once: those that have not shown who they are, by address, and
// those of operators, by name. When there is another one, the oldest of the source that has the most is ended, so that
// whoever means it gets in. Those go first that have not come far.
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
	from string // changes only while it is in none
	said int    // bytes

	mu sync.Mutex
	in *crowd // nil: it is in none
	// far is that it has come so far that others go first: it has said hello, or its whole request, or
	// an operator's request is served on it. Under the crowd's lock.
	far    bool
	served int // such requests, also under the crowd's lock
}

func newCrowd(most int) *crowd { return &crowd{most: most, bySource: map[string][]*guest{}} }

// enter takes a connection in, in place of another one if there is no room.
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

// expel ends the oldest connection of the source that has the most, of those that have not come
// far if there are any.
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

// close ends all that are there or come.
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

// came lets others go first.
func (g *guest) came() {
	g.inside(func() { g.far = true })
}

// serves lets others go first while requests are served: by is how many more.
func (g *guest) serves(by int) {
	g.inside(func() {
		g.served += by
		g.far = g.served > 0
	})
}

// inside does something under the lock of the crowd that the connection is in, if it is in one.
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

// hello is how many bytes of a client's first message there are at least.
const hello = 100

// Read counts what the client says.
func (g *guest) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.said < hello && g.said+n >= hello {
		g.came()
	}
	g.said = min(g.said+n, hello)
	return n, err
}

// Close makes room for another one.
func (g *guest) Close() error {
	g.leave()
	return g.Conn.Close()
}
