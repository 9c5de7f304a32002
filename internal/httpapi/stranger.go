package httpapi

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"time"
)

const (
	// maxStranger is the largest body of a request without a certificate. The body of an enrolment has about 1 KiB.
	maxStranger = 16 << 10
	// strangerPatience is how long a client without a certificate may take to send the body.
	strangerPatience = 5 * time.Second
	// MaxHeader is the largest header of any request.
	MaxHeader = 16 << 10
)

type guestKey struct{}

// ConnContext is the field ConnContext of an http.Server that listens on a Door.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		if g, ok := t.NetConn().(*guest); ok {
			return context.WithValue(ctx, guestKey{}, g)
		}
	}
	return ctx
}

// Strangers limits the cost of requests without a certificate. Strangers limits the bytes and the time, and closes
// the connection after the answer. If there are too many connections of operators, the Door first closes a connection
// that has no running request. A connection without a certificate that has sent its whole request stays open longer
// than a connection that has sent only a part.
func Strangers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.TLS == nil || len(r.TLS.PeerCertificates) > 0 {
			if g, ok := r.Context().Value(guestKey{}).(*guest); ok {
				g.serves(1)
				defer g.serves(-1)
			}
			next.ServeHTTP(w, r)
			return
		}
		w.Header().Set("Connection", "close")
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerPatience)) // net/http supports this
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxStranger))
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok && err == nil {
			g.came()
		}
		next.ServeHTTP(w, r)
	})
}

// The type `failing` is the end of a copy of a body. Its Read returns the error with which the reading
// of the original body ended, or io.EOF.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}
