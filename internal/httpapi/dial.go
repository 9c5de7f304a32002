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

// How often a connection is made again that was cut while it was being made.
const (
	dialTries = 6
	dialPause = 50 * time.Millisecond // before the second try; each time twice as long
)

// Transport carries a client's requests. A connection that is cut before TLS is
// finished is made again, a few times: a server that many crowd puts out the one that
// is longest at it (Door), and nothing has been asked by then.
func Transport(config *tls.Config, dialer *net.Dialer) *http.Transport {
	config = config.Clone()
	config.NextProtos = append([]string{"h2", "http/1.1"}, config.NextProtos...) // by which CAs are named (ADR 0027)
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
