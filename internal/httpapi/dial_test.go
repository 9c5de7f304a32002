package httpapi_test

import (
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/tutti-project/tutti/internal/httpapi"
)

// The type `cutting` is a listener that closes its first connections at once.
type cutting struct {
	net.Listener
	cuts, made int
}

func (l *cutting) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if l.made++; l.made > l.cuts {
			return c, nil
		}
		_ = c.Close()
	}
}

// TestTransport checks that a client tries again if the server closes a connection
// before TLS is finished. After some tries the client gives up.
func TestTransport(t *testing.T) {
	for _, tc := range []struct {
		reason           string
		cuts, made, asks int
	}{
		{"nobody is put out", 0, 1, 1},
		{"a crowd", 5, 6, 1},
		{"nobody gets in", 1000, 6, 0},
	} {
		asks := 0
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			if asks++; r.ProtoMajor != 2 {
				t.Errorf("%s: asked by %s, want HTTP/2", tc.reason, r.Proto)
			}
		}))
		l := &cutting{Listener: s.Listener, cuts: tc.cuts}
		s.Listener, s.EnableHTTP2 = l, true
		s.StartTLS()
		transport := httpapi.Transport(s.Client().Transport.(*http.Transport).TLSClientConfig, &net.Dialer{})
		resp, err := (&http.Client{Transport: transport}).Get(s.URL)
		if err == nil {
			_ = resp.Body.Close()
		}
		transport.CloseIdleConnections()
		s.Close()
		if (err == nil) != (tc.asks == 1) || l.made != tc.made || asks != tc.asks {
			t.Errorf("%s: %v, %d connections and %d requests, want %d and %d", tc.reason, err, l.made, asks, tc.made, tc.asks)
		}
	}
}
