package attack

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"

	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/httpapi"
	"github.com/tutti-project/tutti/internal/identity"
)

// viewer creates an operator who may only view lists.
func (f *fleet) viewer(t *testing.T) *tls.Config {
	t.Helper()
	key, err := identity.NewOperatorKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request("viewer")
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.admin.IssueOperator(t.Context(), api.IssueOperator{Operator: "viewer", Request: request})
	if err != nil {
		t.Fatal(err)
	}
	bundle, err := key.Bundle(out, nil)
	if err != nil {
		t.Fatal(err)
	}
	source := fleetFile + "\naccess:\n  - {to: admin, may: admin}\n  - {to: \"*\", may: view}\n"
	if _, err := f.admin.SetFleet(t.Context(), api.FleetSource{File: "tutti.yaml", Source: []byte(source)}); err != nil {
		t.Fatal(err)
	}
	config := bundle.TLS()
	config.ServerName = "127.0.0.1"
	return config
}

// TestOperatorHoldsConnections lets one operator open more connections than the server may open files. The
// server must continue, and other operators must be able to connect.
func TestOperatorHoldsConnections(t *testing.T) {
	const held = 3400
	moreFiles(t, held)
	f := startWith(t, 3000)
	config := f.viewer(t)
	work := make(chan int)
	var mu sync.Mutex
	var open []net.Conn
	var at sync.WaitGroup
	for range 8 {
		at.Go(func() {
			for range work {
				c, err := (&tls.Dialer{Config: config}).DialContext(t.Context(), "tcp", f.https)
				if err != nil {
					continue // the server closed the connection in favour of another connection of the same operator
				}
				_, _ = fmt.Fprint(c, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
				mu.Lock()
				open = append(open, c)
				mu.Unlock()
			}
		})
	}
	for i := range held {
		work <- i
	}
	close(work)
	at.Wait()
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	if len(open) < held/2 {
		t.Errorf("%d of %d connections were made", len(open), held)
	}
	f.works("during")
	for i := range 3 {
		if _, err := f.issued(fmt.Sprintf("bob-%d", i)).ListJobs(t.Context()); err != nil {
			t.Errorf("an operator who comes now: %v", err)
		}
	}
	if files := f.files(); files > 1500 {
		t.Errorf("the server has %d files open", files)
	}
	f.works("still during")
}

// halfSent is a request body of which only the first part arrives. After this part the body signals on `sent`, and
// blocks until its channel `end` is closed.
type halfSent struct {
	left int
	sent *sync.WaitGroup
	once sync.Once
	end  <-chan struct{}
}

func (h *halfSent) Read(p []byte) (int, error) {
	if h.left == 0 {
		h.once.Do(h.sent.Done)
		<-h.end
		return 0, io.EOF
	}
	n := min(len(p), h.left)
	for i := range p[:n] {
		p[i] = ' '
	}
	h.left -= n
	return n, nil
}

// TestOperatorHoldsBodies sends half of many large requests, which must cost the server little memory.
func TestOperatorHoldsBodies(t *testing.T) {
	const held, most = 40, 200 << 20
	f := start(t)
	config := f.viewer(t)
	memory := f.memory()
	ctx, cancel := context.WithCancel(t.Context())
	var sent, ended sync.WaitGroup
	for range held {
		sent.Add(1)
		transport := httpapi.Transport(config, &net.Dialer{})
		t.Cleanup(transport.CloseIdleConnections)
		body := &halfSent{left: 31 << 20, sent: &sent, end: ctx.Done()}
		ended.Go(func() {
			defer body.once.Do(sent.Done) // the server has refused the request
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://"+f.https+"/v1/operators/renew", body)
			if err != nil {
				return
			}
			r.Header.Set("Content-Type", "application/json")
			if answer, err := (&http.Client{Transport: transport}).Do(r); err == nil {
				_ = answer.Body.Close()
			}
		})
	}
	sent.Wait()
	f.works("during")
	if more := f.memory() - memory; more > most {
		t.Errorf("the server took %d MiB more", more>>20)
	}
	cancel()
	ended.Wait()
	f.works("after")
}
