package natsbus

import (
	"time"

	"github.com/nats-io/nats.go"
)

// Connect makes one of the server's own connections: to the account of the log, or to that of the nodes. URL is empty
// for an embedded bus, whose InProcess option says where it is. The connection reconnects for ever. It holds no message
// back to send it later, because an append that comes late is one that its writer has given up.
func Connect(url, jwt string, seed []byte, options ...nats.Option) (*nats.Conn, error) {
	nc, err := nats.Connect(url, append([]nats.Option{
		nats.Name("tutti server"),
		nats.UserJWTAndSeed(jwt, string(seed)),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.ReconnectBufSize(-1),
		nats.Timeout(helloTimeout), // a busy machine takes longer than the client's two seconds
	}, options...)...)
	if err != nil {
		return nil, wrap(err, "connect to the bus")
	}
	return nc, nil
}
