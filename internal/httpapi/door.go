package httpapi

import (
	"cmp"
	"context"
	"crypto/tls"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
)

// Door is a listener whose connections have finished TLS. The Door ends connections that do not finish TLS in time.
// The Door limits three sets of connections (see crowd): connections in the TLS handshake, connections without a
// certificate, and connections with a certificate. A busy client may need long for TLS, so the Door first ends
// connections that have not even sent a hello. The Door computes only for a few handshakes at the same time, so that
// enough processors stay free for the server's other work.
type Door struct {
	net.Listener
	o         DoorOptions
	passed    chan net.Conn
	closed    chan struct{}
	once      sync.Once
	wait      sync.WaitGroup
	shaking   *crowd
	strangers *crowd        // connections without a certificate
	operators *crowd        // connections with a certificate, by the name in it
	hellos    chan struct{} // contains one element for each handshake that computes
}

// DoorOptions are the limits of a Door. A field that is zero has the default value.
type DoorOptions struct {
	TLS *tls.Config // required
	// Refused is called with the address of a connection that the Door closed, and with the reason.
	// While Refused blocks, the handling of other connections may wait, too.
	Refused func(from string, cause error)

	Timeout   time.Duration // for TLS, by default 10 s
	Most      int           // connections in TLS at the same time, by default 1024
	Strangers int           // connections without a certificate that have finished TLS, by default 256
	Operators int           // connections with a certificate that have finished TLS, by default 1024
	Hellos    int           // handshakes that compute at the same time, by default half the number of processors
}

const (
	doorTimeout   = 10 * time.Second
	doorMost      = 1024
	doorStrangers = 256
	doorOperators = 1024
)

// NewDoor starts to accept connections on l. Close ends that.
func NewDoor(l net.Listener, o DoorOptions) *Door {
	o.Timeout = cmp.Or(o.Timeout, doorTimeout)
	d := &Door{
		Listener: l, o: o, passed: make(chan net.Conn), closed: make(chan struct{}),
		shaking: newCrowd(cmp.Or(o.Most, doorMost)), strangers: newCrowd(cmp.Or(o.Strangers, doorStrangers)),
		operators: newCrowd(cmp.Or(o.Operators, doorOperators)),
		hellos:    make(chan struct{}, cmp.Or(o.Hellos, max(1, runtime.GOMAXPROCS(0)/2))),
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

// Close returns when all connections that were in TLS have ended.
func (d *Door) Close() error {
	err := d.Listener.Close()
	d.once.Do(func() { close(d.closed) })
	d.shaking.close()
	d.wait.Wait()
	return err
}

func (d *Door) run() {
	const pause = 50 * time.Millisecond
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

// The function `source` returns the client's address without the port.
func source(c net.Conn) string {
	host, _, err := net.SplitHostPort(c.RemoteAddr().String())
	if err != nil {
		return c.RemoteAddr().String()
	}
	return host
}

// handshake makes TLS. A panic during the handshake ends only this connection.
func handshake(ctx context.Context, t *tls.Conn) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = tutti.Errorf(tutti.CodeInternal, "TLS: %v\n%s", p, debug.Stack())
		}
	}()
	return t.HandshakeContext(ctx)
}

func (d *Door) shake(g *guest) {
	ctx, cancel := context.WithTimeout(context.Background(), d.o.Timeout)
	defer cancel()
	t := tls.Server(g, d.o.TLS)
	g.turns = &turns{ctx: ctx, places: d.hellos}
	err := handshake(ctx, t)
	g.turns.waits() // frees the place if the handshake ended without an answer to the client
	g.turns = nil
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
		_ = g.Close() // the client has sent no request, so it needs no answer
	}
}
