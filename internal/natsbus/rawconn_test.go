package natsbus_test

import (
	"bufio"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/nats-io/nkeys"

	"github.com/tutti-project/tutti/internal/bustest"
)

// rawConn sends the bus's protocol without the client library. The library
// would refuse to send what the tests send.
type rawConn struct {
	t *testing.T
	*tls.Conn
	in *bufio.Reader
}

func rawTLS(t *testing.T, bus *bustest.Bus, node bustest.Node, config *tls.Config) *rawConn {
	t.Helper()
	conn, err := tls.Dial("tcp", strings.TrimPrefix(bus.URL(), "nats://"), config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c := &rawConn{t: t, Conn: conn, in: bufio.NewReader(conn)}
	line, err := c.in.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	var info struct{ Nonce string }
	if err := json.Unmarshal([]byte(strings.TrimPrefix(line, "INFO ")), &info); err != nil {
		t.Fatal(err)
	}
	kp, err := nkeys.FromSeed(node.Seed)
	if err != nil {
		t.Fatal(err)
	}
	sig, err := kp.Sign([]byte(info.Nonce))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(conn, "CONNECT {\"jwt\":%q,\"sig\":%q,\"verbose\":false,\"lang\":\"go\",\"version\":\"1\",\"protocol\":1}\r\n", node.JWT, base64.RawURLEncoding.EncodeToString(sig))
	if c.ping() {
		t.Fatal("the node is not admitted")
	}
	return c
}

func (c *rawConn) pub(subject string, size int) {
	fmt.Fprintf(c, "PUB %s %d\r\n", subject, size)
	// Errors are ignored, because ping notices a closed connection.
	_, _ = c.Write(make([]byte, size))
	_, _ = c.Write([]byte("\r\n"))
}

// ping reports whether the server has closed the connection.
func (c *rawConn) ping() (closed bool) {
	_, _ = c.Write([]byte("PING\r\n"))
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			return true
		}
		if strings.HasPrefix(line, "PONG") {
			return false
		}
	}
}
