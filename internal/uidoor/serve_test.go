package uidoor_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti/internal/uidoor"
)

// TestTheFileGoes: the file with the code is gone when a browser has used the code. It is also gone when the page ends.
func TestTheFileGoes(t *testing.T) {
	for _, enter := range []bool{true, false} {
		dir := t.TempDir()
		t.Setenv("XDG_RUNTIME_DIR", dir)
		ctx, end := context.WithCancel(t.Context())
		err := uidoor.Serve(ctx, uidoor.Options{Server: &server{}}, "", func(at uidoor.Opened) {
			defer end()
			if _, err := os.Stat(at.File); err != nil || filepath.Dir(filepath.Dir(at.File)) != dir {
				t.Errorf("%s: %v", at.File, err)
			}
			origin, code, _ := strings.Cut(at.URL, "/ui/#code=")
			if !enter {
				return
			}
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, origin+"/door/exchange", strings.NewReader(`{"code":"`+code+`"}`))
			if err != nil {
				t.Error(err)
				return
			}
			r.Header.Set("Content-Type", "application/json")
			resp, err := http.DefaultClient.Do(r)
			if err != nil {
				t.Error(err)
				return
			}
			defer resp.Body.Close()
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 || resp.StatusCode != http.StatusOK {
				t.Errorf("%s, and there is %v (%v)", resp.Status, left, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("afterwards there is %v (%v)", left, err)
		}
	}
}

// The type `once` is a listener with one connection.
type once struct{ conns chan net.Conn }

func (o once) Accept() (net.Conn, error) {
	if c, ok := <-o.conns; ok {
		return c, nil
	}
	return nil, net.ErrClosed
}
func (o once) Close() error { return nil }
func (once) Addr() net.Addr { return &net.TCPAddr{} }

// connect returns a connection to a server with this handler.
func connect(t *testing.T, h http.Handler) net.Conn {
	ours, theirs := net.Pipe()
	l := once{make(chan net.Conn, 1)}
	l.conns <- theirs
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }()
	t.Cleanup(func() { _ = ours.Close(); close(l.conns); _ = server.Close() })
	return ours
}

// TestASlowBody: a stranger cannot hold a connection by sending a request slowly. Until the request is there, a code stays
// good.
func TestASlowBody(t *testing.T) {
	for _, c := range []struct {
		reason, method, path, host, body string
		status                           int
	}{
		{"an exchange", "POST", "/door/exchange", "127.0.0.1:" + port, `{"code":"CODE"}`, 400},
		{"a call", "POST", "/v1/nodes/list", "127.0.0.1:" + port, "{", 400},
		{"another host", "POST", "/door/exchange", "evil.example", "{", 403},
		{"the page", "GET", "/ui/", "127.0.0.1:" + port, "{", 200},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newDoor()
			bearer, code := f.enter(t, f.Code()), f.Code()
			conn := connect(t, f)
			began := time.Now()
			go fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: 1000\r\n\r\n%s",
				c.method, c.path, c.host, bearer, strings.ReplaceAll(c.body, "CODE", code))
			answer := bufio.NewReader(conn)
			resp, err := http.ReadResponse(answer, nil)
			if err != nil || resp.StatusCode != c.status {
				t.Errorf("%s: %v %v", c.reason, resp, err)
			}
			if err == nil {
				_, _ = io.Copy(io.Discard, resp.Body)
				_ = resp.Body.Close()
			}
			if rest, err := io.ReadAll(answer); err != nil || len(rest) > 0 {
				t.Errorf("%s: the connection goes on: %q %v", c.reason, rest, err)
			}
			if took := time.Since(began); took > 15*time.Second {
				t.Errorf("%s: the connection ended after %s", c.reason, took)
			}
			if strings.Contains(c.body, "CODE") {
				f.enter(t, code)
			}
		})
	}
}

// The type `stream` is a server whose answer takes an hour.
type stream struct{ broken chan error }

func (s stream) Forward(w http.ResponseWriter, r *http.Request, _ string, _ []byte, _ bool) {
	select {
	case <-r.Context().Done():
	case <-time.After(time.Hour):
	}
	s.broken <- r.Context().Err()
	w.WriteHeader(http.StatusNoContent)
}

// TestAStreamHasNoDeadline: the deadline of a request does not end its answer. A browser that has gone ends it.
func TestAStreamHasNoDeadline(t *testing.T) {
	for _, c := range []struct {
		body string
		gone bool
	}{{"{}", false}, {"", false}, {"{}", true}, {"", true}} { // package http watches a request without a body from its beginning
		synctest.Test(t, func(t *testing.T) {
			f, s := newDoor(), stream{make(chan error, 1)}
			bearer := f.enter(t, f.Code())
			f.Server = s
			conn := connect(t, f)
			r := request("POST", "/v1/audit/read", bearer, c.body)
			if c.body == "" {
				r.Body = http.NoBody
			}
			go func() { _ = r.Write(conn) }()
			synctest.Wait()
			if c.gone {
				_ = conn.Close()
			} else {
				go func() { _, _ = io.Copy(io.Discard, conn) }()
			}
			if err := <-s.broken; (err != nil) != c.gone {
				t.Errorf("body %q, the browser has gone: %v; the stream ended with %v", c.body, c.gone, err)
			}
		})
	}
}
