package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"sync"
	"time"
)

// Door is a listener whose connections have finished TLS. Who does not finish it
// in time is put out. Only so many are at it at once, and only so many that have finished it
// are there at once, without a certificate and with one (see crowd): a busy machine may need long for
// TLS, so those go first that have not even said hello.
type Door struct {
	net.Listener
	o         DoorOptions
	passed    chan net.Conn
	closed    chan struct{}
	once      sync.Once
	wait      sync.WaitGroup
	shaking   *crowd
	strangers *crowd // who showed no certificate
	operators *crowd // who showed one, by the name in it
}

// DoorOptions say who gets through. Zero values take the defaults.
type DoorOptions struct {
	TLS *tls.Config // required
	// Refused is told the address of who did not get through and why. It may
	// block; then others wait, too.
	Refused func(from string, cause error)

	Timeout   time.Duration // for TLS; 10 s
	Most      int           // at it at once; 1024
	Strangers int           // who have finished it without a certificate; 256
	Operators int           // who have finished it with one; 1024
}

const (
	doorTimeout   = 10 * time.Second
	doorMost      = 1024
	doorStrangers = 256
	doorOperators = 1024
)

// NewDoor begins to accept on l. Close ends that.
func NewDoor(l net.Listener, o DoorOptions) *Door {
	o.Timeout = cmp.Or(o.Timeout, doorTimeout)
	d := &Door{
		Listener: l, o: o, passed: make(chan net.Conn), closed: make(chan struct{}),
		shaking: newCrowd(cmp.Or(o.Most, doorMost)), strangers: newCrowd(cmp.Or(o.Strangers, doorStrangers)),
		operators: newCrowd(cmp.Or(o.Operators, doorOperators)),
	}
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
	d.shaking.close()
	d.wait.Wait()
	return err
}

func (d *Door) run() {
	const pause = 50 * time.Millisecond // no file descriptors, say: some will be free
	for {
		c, err := d.Listener.Accept()
		if err == nil {
			g := &guest{Conn: c, from: source(c)}
			d.shaking.enter(g)
			d.wait.Go(func() { d.shake(g) })
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

func (d *Door) shake(g *guest) {
	ctx, cancel := context.WithTimeout(context.Background(), d.o.Timeout)
	defer cancel()
	t := tls.Server(g, d.o.TLS)
	err := t.HandshakeContext(ctx)
	g.leave()
	if err != nil {
		_ = g.Close()
		select {
		case <-d.closed:
		default:
			d.o.Refused(g.from, err)
		}
		return
	}
	if shown := t.ConnectionState().PeerCertificates; len(shown) == 0 {
		d.strangers.enter(g)
	} else {
		g.from = "operator:" + shown[0].Subject.CommonName
		d.operators.enter(g)
	}
	select {
	case d.passed <- t:
	case <-d.closed:
		_ = g.Close() // nobody is told: it said nothing yet
	}
}
