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

// Connect makes one of the server's own connections: to the account of the log, or to that of the nodes. URL is empty
// for an embedded bus, whose InProcess option says where it is. If the bus closes the first connection, as it does on a
// machine that is too busy to answer in time, Connect tries again for a minute. If ctx ends, or if a bus on the network
// refuses the credentials, Connect returns an error at once. A connection that was made reconnects for ever. It keeps no message to
// send it later, because its writer has given up an append that comes late.
func Connect(ctx context.Context, url, jwt string, seed []byte, options ...nats.Option) (*nats.Conn, error) {
	options = append([]nats.Option{
		nats.Name("tutti server"),
		nats.UserJWTAndSeed(jwt, string(seed)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(connectAgain),
		nats.ReconnectBufSize(-1),
		nats.Timeout(helloTimeout), // a busy machine takes longer than the client's two seconds
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
