package httpapi_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// behindADoor serves a handler in the same way as the server process.
func behindADoor(t *testing.T, strangers int, h http.Handler) (addr string, authority *identity.Authority) {
	t.Helper()
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	return serveBehindADoor(t, authority, httpapi.DoorOptions{Strangers: strangers}, h), authority
}

func serveBehindADoor(t *testing.T, authority *identity.Authority, o httpapi.DoorOptions, h http.Handler) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	o.TLS, o.Refused = authority.HTTPS(), func(string, error) {}
	door := httpapi.NewDoor(l, o)
	web := &http.Server{Handler: httpapi.Strangers(h), ConnContext: httpapi.ConnContext, ReadHeaderTimeout: time.Hour}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = web.Serve(door)
	}()
	t.Cleanup(func() {
		_ = web.Close()
		<-served
	})
	return l.Addr().String()
}

// The function `stranger` finishes TLS without a certificate and sends a text.
func stranger(t *testing.T, addr string, authority *identity.Authority, says string) *tls.Conn {
	t.Helper()
	config, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.Dial("tcp", addr, config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.WriteString(c, says); err != nil {
		t.Fatal(err)
	}
	return c
}

// TestStrangersMakeRoomForEachOther checks that the door closes a connection without a certificate that sends
// nothing, if a newer one needs room. A client that has sent its whole request gets an answer.
func TestStrangersMakeRoomForEachOther(t *testing.T) {
	asked, answer := make(chan struct{}), make(chan struct{})
	addr, authority := behindADoor(t, 2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(asked)
		<-answer
		fmt.Fprint(w, "here you are")
	}))
	honest := stranger(t, addr, authority, "POST /v1/enrol HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}")
	<-asked
	ended := make(chan error, 4)
	for range 4 {
		silent := stranger(t, addr, authority, "POST /v1/enrol HTTP/1.1\r\nHost: ")
		_ = silent.SetReadDeadline(time.Now().Add(time.Minute))
		go func() {
			_, err := io.Copy(io.Discard, silent) // ends when the test ends
			ended <- err
		}()
	}
	// There is room for two connections. The connection with the first request stays, and one of the newer
	// connections.
	for range 3 {
		if err := <-ended; errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal("a stranger who says nothing is still there")
		}
	}
	close(answer)
	said, err := io.ReadAll(honest)
	if !strings.HasSuffix(string(said), "here you are") {
		t.Errorf("who had said the whole request got %q, %v", said, err)
	}
}

// TestWithoutACertificateNothingIsKeptAlive checks that a connection without a certificate serves one request. A
// connection with a certificate serves many requests.
func TestWithoutACertificateNothingIsKeptAlive(t *testing.T) {
	addr, authority := behindADoor(t, 2, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "here you are") }))
	nobody, err := identity.ClientTLS(authority.CA())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		reason string
		config *tls.Config
		kept   bool
	}{
		{"without a certificate", nobody, false},
		{"an operator", operator(t, authority), true},
	} {
		client, kept := with(t, tc.config), false
		for range 2 {
			trace := &httptrace.ClientTrace{GotConn: func(got httptrace.GotConnInfo) { kept = got.Reused }}
			req, err := http.NewRequestWithContext(httptrace.WithClientTrace(t.Context(), trace), http.MethodGet, "https://"+addr+"/healthz", nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := client.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			_, _ = io.Copy(io.Discard, resp.Body)
			resp.Body.Close()
		}
		if kept != tc.kept {
			t.Errorf("%s: the second request was on the first one's connection: %t", tc.reason, kept)
		}
	}
}

// The type `deadlines` is a response that records the deadline of its connection.
type deadlines struct {
	*httptest.ResponseRecorder
	read time.Time
}

func (d *deadlines) SetReadDeadline(t time.Time) error { d.read = t; return nil }

// TestARequestWithoutACertificateIsSmallAndSoonThere checks the limits for the time and the size of a request
// without a certificate.
func TestARequestWithoutACertificateIsSmallAndSoonThere(t *testing.T) {
	operators := &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{}}}
	for _, tc := range []struct {
		reason string
		tls    *tls.ConnectionState
		bytes  int
		passes bool
		bound  bool // in time
	}{
		{"an enrolment", &tls.ConnectionState{}, 1 << 10, true, true},
		{"a large one", &tls.ConnectionState{}, 17 << 10, false, true},
		{"an operator's", operators, 17 << 10, true, false},
		{"root's, by the local socket", nil, 17 << 10, true, false},
	} {
		r := httptest.NewRequest(http.MethodPost, "/v1/enrol", strings.NewReader(strings.Repeat("x", tc.bytes)))
		r.TLS = tc.tls
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		read, err := 0, error(nil)
		httpapi.Strangers(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			var body []byte
			body, err = io.ReadAll(r.Body)
			read = len(body)
		})).ServeHTTP(w, r)
		if passes := err == nil && read == tc.bytes; passes != tc.passes || w.read.IsZero() == tc.bound {
			t.Errorf("%s: %d bytes of %d, %v; to be read until %v", tc.reason, read, tc.bytes, err, w.read)
		}
	}
}

// TestOperatorsMakeRoomForEachOther checks which connection the door closes. The door closes the oldest connection of
// the operator who has the most connections. Of these connections, the door first closes those without a running
// request. Other operators keep their connections.
func TestOperatorsMakeRoomForEachOther(t *testing.T) {
	authority, err := identity.Init(filepath.Join(t.TempDir(), "identity"), nil)
	if err != nil {
		t.Fatal(err)
	}
	asked, answer := make(chan struct{}, 1), make(chan struct{})
	addr := serveBehindADoor(t, authority, httpapi.DoorOptions{Operators: 4}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/slow" {
			asked <- struct{}{}
			<-answer
		}
		fmt.Fprint(w, "here you are")
	}))
	comes := func(name, asks string) *tls.Conn {
		t.Helper()
		bundle, err := authority.IssueOperator(name)
		if err != nil {
			t.Fatal(err)
		}
		c, err := tls.Dial("tcp", addr, bundle.TLS())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		if _, err := io.WriteString(c, "GET "+asks+" HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		return c
	}
	said := func(c *tls.Conn) error {
		_, err := c.Read(make([]byte, 1<<10))
		return err
	}
	ada := comes("ada", "/healthz")
	if err := said(ada); err != nil {
		t.Fatal(err)
	}
	busy := comes("mallory", "/slow")
	<-asked
	var idle []*tls.Conn
	for range 8 {
		c := comes("mallory", "/healthz")
		if err := said(c); err != nil {
			t.Fatalf("one more connection: %v", err)
		}
		idle = append(idle, c)
	}
	for i, c := range idle[:6] {
		if err := said(c); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("connection %d of 8: %v, want its end", i, err)
		}
	}
	close(answer)
	if err := said(busy); err != nil {
		t.Errorf("the one on which something was asked: %v", err)
	}
	if _, err := io.WriteString(ada, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if err := said(ada); err != nil {
		t.Errorf("another operator's: %v", err)
	}
}
