package httpapi_test

import (
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// If there are too many connections in TLS from one address, the door closes the oldest ones and reports
// them. Close does not wait for the client of such a connection. Connections from other addresses stay.
func TestTheDoor(t *testing.T) {
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	refused := map[string]int{}
	door := httpapi.NewDoor(l, httpapi.DoorOptions{TLS: authority.HTTPS(), Most: 4, Timeout: time.Hour, Refused: func(from string, _ error) {
		mu.Lock()
		defer mu.Unlock()
		refused[from]++
	}})
	var silent []net.Conn
	for i := range 11 {
		var d net.Dialer
		if i == 0 { // this connection from another address must stay
			d.LocalAddr = &net.TCPAddr{IP: net.IPv4(127, 0, 0, 2)}
		}
		c, err := d.DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		silent = append(silent, c)
	}
	alone, silent := silent[0], silent[1:]
	for i, c := range silent[:7] { // the door closed these connections, because they are the oldest
		_ = c.SetReadDeadline(time.Now().Add(20 * time.Second))
		if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of 10: %v, want its end", i, err)
		}
	}
	config, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	said := make(chan error, 1)
	go func() {
		c, err := tls.Dial("tcp", l.Addr().String(), config)
		if err == nil {
			defer c.Close() //nolint:errcheck // the door has closed it
		}
		said <- err
	}()
	// The door closed no connection of the other address.
	_ = alone.SetReadDeadline(time.Now().Add(time.Millisecond))
	if _, err := alone.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the connection of another address: %v, want that it is there", err)
	}
	got, err := door.Accept()
	if err != nil {
		t.Fatal(err)
	}
	if _, ok := got.(*tls.Conn); !ok || <-said != nil {
		t.Errorf("who finishes TLS comes as %T", got)
	}
	got.Close()
	if err := door.Close(); err != nil {
		t.Error(err)
	}
	if _, err := door.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a door that is closed: %v", err)
	}
	mu.Lock()
	defer mu.Unlock()
	if refused["127.0.0.1"] < 7 || refused["127.0.0.2"] > 0 {
		t.Errorf("told of %v, want at least 7", refused)
	}
}

// slowConn is the connection of a client on a busy machine. The client answers only when the test permits
// it.
type slowConn struct {
	net.Conn
	answered chan struct{} // closed when the server has answered the hello
	once     sync.Once
	goOn     chan struct{}
}

func (c *slowConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	c.once.Do(func() { close(c.answered) })
	<-c.goOn
	return n, err
}

// TestWhoHasSaidHelloStays checks that the door first closes connections that have sent nothing. A slow
// connection that has sent its hello stays, even if it is older.
func TestWhoHasSaidHelloStays(t *testing.T) {
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	put := make(chan struct{}, 100)
	door := httpapi.NewDoor(l, httpapi.DoorOptions{TLS: authority.HTTPS(), Most: 2, Timeout: time.Hour, Refused: func(string, error) { put <- struct{}{} }})
	defer func() {
		if err := door.Close(); err != nil {
			t.Error(err)
		}
	}()
	config, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	slow := &slowConn{Conn: dial(), answered: make(chan struct{}), goOn: make(chan struct{})}
	config = config.Clone()
	config.ServerName = "127.0.0.1"
	client := tls.Client(slow, config)
	shaken := make(chan error, 1)
	go func() { shaken <- client.HandshakeContext(t.Context()) }()
	<-slow.answered
	for range 5 {
		dial()
	}
	for range 4 { // exactly these connections were closed
		<-put
	}
	close(slow.goOn)
	if err := <-shaken; err != nil {
		t.Fatalf("who was slow: %v", err)
	}
	passed := make(chan error, 1)
	go func() {
		_, err := door.Accept()
		passed <- err
	}()
	gone := make(chan error, 1)
	go func() {
		_, err := client.Read(make([]byte, 1))
		gone <- err
	}()
	select {
	case err := <-passed:
		if err != nil {
			t.Error(err)
		}
	case err := <-gone:
		t.Errorf("who had said hello was put out: %v", err)
	}
}

// If a handler panics, only its own request fails, and the failure is reported.
func TestAPanicFailsOneRequest(t *testing.T) {
	var denied []string
	services := services(jobs{watch: func(context.Context, func(api.Watched) error) error { panic("a mistake") }})
	s := httptest.NewServer(httpapi.NewHandler(httpapi.Options{
		Services: services, Logger: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Admit: func(r *http.Request, _ []tutti.Verb) (context.Context, func(), error) {
			return r.Context(), func() {}, nil
		},
		Denied: func(_ *http.Request, what string, _ error) { denied = append(denied, what) },
	}))
	defer s.Close()
	client := httpapi.NewClient(s.URL, s.Client())
	for range 2 {
		err := client.WatchJob(t.Context(), api.WatchJob{}, func(api.Watched) error { return nil })
		if tutti.CodeOf(err) != tutti.CodeInternal {
			t.Errorf("%v, want internal", err)
		}
	}
	if len(denied) != 2 || denied[0] != "cause a panic in /v1/jobs/watch" {
		t.Errorf("told of %q", denied)
	}
}

// TestFewHellosAreAnsweredAtOnce: the server answers only a few hellos at the same time. A client that is slow or
// disconnects does not occupy a place.
func TestFewHellosAreAnsweredAtOnce(t *testing.T) {
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	const places = 2
	var now, most atomic.Int64
	begun, goOn := make(chan struct{}, 100), make(chan struct{})
	config := authority.HTTPS()
	next := config.GetConfigForClient
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if n := now.Add(1); n > most.Load() {
			most.Store(n)
		}
		begun <- struct{}{}
		<-goOn
		now.Add(-1)
		return next(hello)
	}
	door := httpapi.NewDoor(l, httpapi.DoorOptions{TLS: config, Timeout: 30 * time.Second, Hellos: places, Refused: func(string, error) {}})
	client, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	var slow []*slowConn // these clients have sent hello and do not continue
	said := make(chan error, 20)
	dial := func(wrap func(net.Conn) net.Conn) {
		c, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		config := client.Clone()
		config.ServerName = "localhost"
		own := tls.Client(wrap(c), config)
		go func() { said <- own.HandshakeContext(t.Context()) }()
	}
	for range places {
		dial(func(c net.Conn) net.Conn {
			s := &slowConn{Conn: c, answered: make(chan struct{}), goOn: make(chan struct{})}
			slow = append(slow, s)
			return s
		})
	}
	for range places {
		<-begun
	}
	const others = 10
	for range others {
		dial(func(c net.Conn) net.Conn { return c })
	}
	close(goOn)
	for _, s := range slow {
		<-s.answered
	}
	for range others { // the others finish although the slow clients are still connected
		if err := <-said; err != nil {
			t.Fatalf("another client: %v", err)
		}
		c, err := door.Accept()
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	}
	if most.Load() > places {
		t.Errorf("%d hellos were answered at once, want at most %d", most.Load(), places)
	}
	for _, s := range slow {
		close(s.goOn)
		if err := <-said; err != nil {
			t.Errorf("who was slow: %v", err)
		}
	}
	if err := door.Close(); err != nil {
		t.Error(err)
	}
}

// TestASecondHelloWaitsForItsTurn: the server asks a client for a second hello if the client guessed the wrong curve.
// The answer to the second hello costs the most work. So the handshake needs a place for the second hello, too.
func TestASecondHelloWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
		if err != nil {
			t.Fatal(err)
		}
		client, err := identity.ClientTLS(authority.CA())
		if err != nil {
			t.Fatal(err)
		}
		client.ServerName = "localhost"
		client.CurvePreferences = []tls.CurveID{tls.X25519, tls.CurveP384}
		const clients = 10
		var computing atomic.Int64
		goOn := make(chan struct{})
		config := authority.HTTPS()
		next := config.GetConfigForClient
		config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			config, err := next(hello)
			if err != nil {
				return nil, err
			}
			config = config.Clone()
			config.CurvePreferences = []tls.CurveID{tls.CurveP384}
			certificate := config.GetCertificate
			config.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
				computing.Add(1)
				<-goOn
				computing.Add(-1)
				return certificate(hello)
			}
			return config, nil
		}
		l := make(pipes)
		door := httpapi.NewDoor(l, httpapi.DoorOptions{TLS: config, Timeout: time.Hour, Hellos: 1, Refused: func(_ string, err error) { t.Log(err) }})
		said := make(chan error, clients)
		for range clients {
			c, err := l.dial(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			q := queued{c, make(chan []byte, 100)}
			go q.send()
			own := tls.Client(q, client.Clone())
			go func() {
				defer close(q.out)
				err := own.HandshakeContext(t.Context())
				if err == nil && !own.ConnectionState().HelloRetryRequest {
					err = errors.New("the server did not ask for a second hello")
				}
				said <- err
			}()
		}
		synctest.Wait()
		if n := computing.Load(); n != 1 {
			t.Errorf("%d second hellos are answered at once, want 1", n)
		}
		close(goOn)
		for range clients {
			if err := <-said; err != nil {
				t.Fatal(err)
			}
			c, err := door.Accept()
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		if err := door.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The type `queued` is a connection whose method Write does not wait until the other side reads. This is necessary
// because both sides send at the same time when the server asks for a second hello.
type queued struct {
	net.Conn
	out chan []byte
}

func (q queued) Write(p []byte) (int, error) {
	q.out <- slices.Clone(p)
	return len(p), nil
}

func (q queued) send() {
	for p := range q.out {
		if _, err := q.Conn.Write(p); err != nil {
			return
		}
	}
}

// A panic during a handshake ends this connection. The next client gets in.
func TestAPanicInTLSEndsOneConnection(t *testing.T) {
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	config := authority.HTTPS().Clone()
	get := config.GetConfigForClient
	var panicked atomic.Bool
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if panicked.CompareAndSwap(false, true) {
			panic("in TLS")
		}
		return get(hello)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	refused := make(chan error, 1)
	door := httpapi.NewDoor(l, httpapi.DoorOptions{TLS: config, Hellos: 1, Timeout: time.Minute, Refused: func(_ string, cause error) { refused <- cause }})
	defer func() { _ = door.Close() }()
	client, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	if c, err := tls.Dial("tcp", l.Addr().String(), client); err == nil {
		_ = c.Close()
		t.Error("the handshake with a panic was completed")
	}
	if cause := <-refused; tutti.CodeOf(cause) != tutti.CodeInternal {
		t.Errorf("refused because of %v, want an internal error", cause)
	}
	c, err := tls.Dial("tcp", l.Addr().String(), client)
	if err != nil {
		t.Fatalf("the next client: %v", err)
	}
	_ = c.Close()
}
