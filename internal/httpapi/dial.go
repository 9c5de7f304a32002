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

// How often a connection is tried again that was cut before TLS was finished.
const (
	dialTries = 6
	dialPause = 50 * time.Millisecond // before the second try; each pause is twice as long as the one before
)

// Transport carries a client's requests. If a connection is cut before TLS is finished, it tries
// again, a few times. A crowded server ends the connections that take the longest
// (Door), and no request has been sent by then.
func Transport(config *tls.Config, dialer *net.Dialer) *http.Transport {
	config = config.Clone()
	config.NextProtos = append([]string{"h2", "http/1.1"}, config.NextProtos...) // these name the CAs that the client trusts (ADR 0027)
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
