package httpapi

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"
)

// Door is a listener whose connections have finished TLS. Who does not finish it
// in time is put out, and only so many are at it at once: when there is another
// one, the oldest of the source that has the most goes, so that whoever means it
// gets in. Those go first that have not even said hello: a busy machine may need long for
// the rest.
type Door struct {
	net.Listener
	o      DoorOptions
	passed chan net.Conn
	closed chan struct{}
	once   sync.Once
	wait   sync.WaitGroup

	mu      sync.Mutex
	waiting map[string][]*guest // by source, the oldest first
	total   int                 // in waiting
}

// guest is a connection that has not finished TLS.
type guest struct {
	net.Conn
	door *Door
	said int  // bytes
	came bool // it has said hello; under the door's lock
}

// hello is how many bytes of a client's first message there are at least.
const hello = 100

// Read counts what the client says.
func (g *guest) Read(p []byte) (int, error) {
	n, err := g.Conn.Read(p)
	if g.said < hello && g.said+n >= hello {
		g.door.mu.Lock()
		g.came = true
		g.door.mu.Unlock()
	}
	g.said = min(g.said+n, hello)
	return n, err
}

// DoorOptions say who gets through. Zero values take the defaults.
type DoorOptions struct {
	TLS *tls.Config // required
	// Refused is told the address of who did not get through and why. It may
	// block; then others wait, too.
	Refused func(from string, cause error)

	Timeout time.Duration // for TLS; 10 s
	Most    int           // at it at once; 1024
}

const (
	doorTimeout = 10 * time.Second
	doorMost    = 1024
)

// NewDoor begins to accept on l. Close ends that.
func NewDoor(l net.Listener, o DoorOptions) *Door {
	if o.Timeout == 0 {
		o.Timeout = doorTimeout
	}
	if o.Most == 0 {
		o.Most = doorMost
	}
	d := &Door{Listener: l, o: o, passed: make(chan net.Conn), closed: make(chan struct{}), waiting: map[string][]*guest{}}
	d.wait.Go(d.run)
	return d
}

// Accept returns the next connection that has finished TLS.
func (d *Door) Accept() (net.Conn, error) {
	select {
	case c := <-d.passed:
		return c, nil
	case <-d.closed:
		return nil, net.ErrClosed
	}
}

// Close returns when nobody is at the door any more.
func (d *Door) Close() error {
	err := d.Listener.Close()
	d.once.Do(func() { close(d.closed) })
	d.mu.Lock()
	for _, conns := range d.waiting {
		for _, c := range conns {
			c.Close()
		}
	}
	d.mu.Unlock()
	d.wait.Wait()
	return err
}

func (d *Door) run() {
	const pause = 50 * time.Millisecond // no file descriptors, say: some will be free
	for {
		c, err := d.Listener.Accept()
		if err == nil {
			from, g := source(c), &guest{Conn: c, door: d}
			d.enter(from, g)
			d.wait.Go(func() { d.shake(from, g) })
			continue
		}
		select {
		case <-d.closed:
			return
		case <-time.After(pause):
		}
	}
}

// source is the address without the port.
func source(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

func (d *Door) enter(from string, c *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.total >= d.o.Most {
		d.expel()
	}
	d.waiting[from] = append(d.waiting[from], c)
	d.total++
	select {
	case <-d.closed: // Close may have passed here already
		c.Close()
	default:
	}
}

// expel ends the oldest connection of the source that has the most, of those that have not said
// hello if there are any.
func (d *Door) expel() {
	var most string
	for from, conns := range d.waiting {
		if len(conns) > len(d.waiting[most]) {
			most = from
		}
	}
	who := max(0, slices.IndexFunc(d.waiting[most], func(g *guest) bool { return !g.came }))
	oldest := d.waiting[most][who]
	oldest.Close()
	d.remove(most, oldest)
}

// remove forgets a connection, if it is known.
func (d *Door) remove(from string, c *guest) {
	i := slices.Index(d.waiting[from], c)
	if i < 0 {
		return
	}
	d.total--
	if d.waiting[from] = slices.Delete(d.waiting[from], i, i+1); len(d.waiting[from]) == 0 {
		delete(d.waiting, from)
	}
}

func (d *Door) leave(from string, c *guest) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.remove(from, c)
}

func (d *Door) shake(from string, c *guest) {
	ctx, cancel := context.WithTimeout(context.Background(), d.o.Timeout)
	defer cancel()
	t := tls.Server(c, d.o.TLS)
	err := t.HandshakeContext(ctx)
	d.leave(from, c)
	if err != nil {
		c.Close()
		select {
		case <-d.closed:
		default:
			d.o.Refused(from, err)
		}
		return
	}
	select {
	case d.passed <- t:
	case <-d.closed:
		c.Close() // nobody is told: it said nothing yet
	}
}
