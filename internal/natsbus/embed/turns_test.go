package embed

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"sync"
	"testing"
	"time"
)

// handshakes are TLS handshakes with one server configuration.
type handshakes struct {
	mu      sync.Mutex
	now     int           // handshakes that compute
	most    int           // the largest value of `now` so far
	entered chan struct{} // gets a message when a handshake computes
	leave   chan struct{} // closed when handshakes may go on
	config  *tls.Config
}

func newHandshakes(t *testing.T, places int, broken time.Duration) *handshakes {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{"bus"}}
	der, err := x509.CreateCertificate(rand.Reader, &template, &template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	h := &handshakes{entered: make(chan struct{}, 100), leave: make(chan struct{})}
	certificate := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	h.config = (&turns{places: make(chan struct{}, places), broken: broken}).bound(&tls.Config{
		MinVersion: tls.VersionTLS13,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			h.count(1)
			h.entered <- struct{}{}
			<-h.leave
			h.count(-1)
			return certificate, nil
		},
	})
	return h
}

func (h *handshakes) count(change int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now += change
	h.most = max(h.most, h.now)
}

// The method `begin` starts a handshake. When `begin` returns, the server has received the hello. The returned
// channel gets the error of the handshake, or nil, at its end.
func (h *handshakes) begin(t *testing.T, hello func(net.Conn) error) <-chan error {
	t.Helper()
	ours, theirs := net.Pipe()
	t.Cleanup(func() { ours.Close(); theirs.Close() })
	ended := make(chan error, 1)
	go func() { ended <- tls.Server(theirs, h.config).HandshakeContext(t.Context()) }()
	sent := make(chan error, 1)
	go func() { sent <- hello(&firstWrite{Conn: ours, sent: sent}) }()
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
	return ended
}

// firstWrite sends the result of the first write to the channel `sent`. The other side of the pipe has then received
// the data, because a pipe has no buffer.
type firstWrite struct {
	net.Conn
	once sync.Once
	sent chan<- error
}

func (f *firstWrite) Write(p []byte) (int, error) {
	n, err := f.Conn.Write(p)
	f.once.Do(func() { f.sent <- err })
	return n, err
}

func honest(c net.Conn) error {
	return tls.Client(c, &tls.Config{InsecureSkipVerify: true}).HandshakeContext(context.Background()) //nolint:gosec // the test's own server
}

// TestFewHandshakesComputeAtOnce: handshakes wait for a place, and all of them come to their end.
func TestFewHandshakesComputeAtOnce(t *testing.T) {
	const places, all = 2, 20
	h := newHandshakes(t, places, time.Hour)
	var ends []<-chan error
	for range all {
		ends = append(ends, h.begin(t, honest))
	}
	for range places {
		<-h.entered
	}
	close(h.leave)
	for i, end := range ends {
		if err := <-end; err != nil {
			t.Errorf("handshake %d: %v", i, err)
		}
	}
	if h.most != places {
		t.Errorf("%d handshakes computed at the same time, want %d", h.most, places)
	}
}

// TestABrokenHandshakeFreesItsPlace: a client whose hello the server refuses does not keep its place.
func TestABrokenHandshakeFreesItsPlace(t *testing.T) {
	h := newHandshakes(t, 1, time.Millisecond)
	close(h.leave)
	old := func(c net.Conn) error {
		return tls.Client(c, &tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}).HandshakeContext(context.Background()) //nolint:gosec // refused
	}
	if err := <-h.begin(t, old); err == nil {
		t.Fatal("the server has accepted TLS 1.2")
	}
	if err := <-h.begin(t, honest); err != nil {
		t.Error(err)
	}
}
