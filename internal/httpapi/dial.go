package httpapi

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"syscall"
	"time"
)

// These constants are for a connection that is cut before TLS is finished. The constants say how
// often and when the client tries again.
const (
	dialTries = 6
	// pause before the second try. Each later pause is twice as long as the pause before it
	dialPause = 50 * time.Millisecond
)

// Transport sends a client's requests. If a connection is cut before TLS is finished, Transport
// tries again a few times. A second try is safe, because no request has been sent yet. If a
// server has too many connections, it closes the connections that take the longest (see Door).
func Transport(config *tls.Config, dialer *net.Dialer) *http.Transport {
	config = config.Clone()
	// the caller's protocols are the names of the CAs that the client trusts (ADR 0027)
	config.NextProtos = append([]string{"h2", "http/1.1"}, config.NextProtos...)
	d := &tls.Dialer{NetDialer: dialer, Config: config}
	return &http.Transport{ForceAttemptHTTP2: true, DialTLSContext: func(ctx context.Context, network, address string) (net.Conn, error) {
		pause := dialPause
		for try := 1; ; try++ {
			c, err := d.DialContext(ctx, network, address)
			if err == nil || try == dialTries || !errors.Is(err, io.EOF) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
				return c, err
			}
			select {
			case <-ctx.Done():
				return nil, err
			case <-time.After(pause):
				pause *= 2
			}
		}
	}}
}
