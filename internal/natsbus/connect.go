package natsbus

import (
	"context"
	"errors"
	"time"

	"github.com/nats-io/nats.go"

	tutti "github.com/tutti-project/tutti"
)

const (
	// firstTry bounds how long Connect tries its first connection.
	firstTry = time.Minute
	// connectAgain is the time between two tries to connect.
	connectAgain = 100 * time.Millisecond
)

// Connect opens one of the server's own connections. The connection's credentials belong either to the
// account of the log or to the account of the nodes. For an embedded bus, the URL is empty, and the
// InProcess option connects to the bus. On a very busy machine the bus may close the first connection
// because the client answers too late. Connect then tries again for a minute. Connect returns an error
// at once if ctx ends, or if a bus on the network refuses the credentials. After the first success, the
// connection reconnects for ever. The connection does not keep messages to send them after a reconnect,
// because a kept message could be an append that the writer has already given up.
func Connect(ctx context.Context, url, jwt string, seed []byte, options ...nats.Option) (*nats.Conn, error) {
	options = append([]nats.Option{
		nats.Name("tutti server"),
		nats.UserJWTAndSeed(jwt, string(seed)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(connectAgain),
		nats.ReconnectBufSize(-1),
		nats.Timeout(helloTimeout), // on a busy machine, two seconds (the client's default) are too short
	}, options...)
	ctx, cancel := context.WithTimeoutCause(ctx, firstTry,
		tutti.Errorf(tutti.CodeUnavailable, "no connection to the bus in %s", firstTry))
	defer cancel()
	for {
		nc, err := nats.Connect(url, options...)
		if err == nil {
			return nc, nil
		}
		if errors.Is(err, nats.ErrAuthorization) || errors.Is(err, nats.ErrAuthExpired) || errors.Is(err, nats.ErrAuthRevoked) {
			return nil, wrap(err, "connect to the bus")
		}
		select {
		case <-ctx.Done():
			return nil, wrap(errors.Join(context.Cause(ctx), err), "connect to the bus")
		case <-time.After(connectAgain):
		}
	}
}
