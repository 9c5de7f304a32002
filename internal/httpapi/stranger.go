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
	// maxStranger bounds the body of a request without a certificate. An enrolment has about 1 KiB.
	maxStranger = 16 << 10
	// strangerPatience is how long such a request may take after its header.
	strangerPatience = 5 * time.Second
	// MaxHeader bounds the header of any request.
	MaxHeader = 16 << 10
)

type guestKey struct{}

// ConnContext is for http.Server.ConnContext of a server behind a Door.
func ConnContext(ctx context.Context, c net.Conn) context.Context {
	if t, ok := c.(*tls.Conn); ok {
		if g, ok := t.NetConn().(*guest); ok {
			return context.WithValue(ctx, guestKey{}, g)
		}
	}
	return ctx
}

// Strangers bounds what a request costs whose connection showed no certificate: its bytes, its
// time, and that the connection ends with the answer. An operator's connection on which none is served goes first, if there
// are too many. One that has said its whole request is
// not put out for those that have not.
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
		_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(strangerPatience)) // net/http can
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxStranger))
		r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), failing{err}))
		if g, ok := r.Context().Value(guestKey{}).(*guest); ok && err == nil {
			g.came()
		}
		next.ServeHTTP(w, r)
	})
}

// failing is the end of a body that was read before: whoever wants it sees how that ended.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err == nil {
		return 0, io.EOF
	}
	return 0, f.err
}
