package embed_test

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/natsbus/embed"
)

// deaf is a connection that stops reading when the channel `now` is closed.
type deaf struct {
	net.Conn
	now, done chan struct{}
}

func (d deaf) Read(p []byte) (int, error) {
	select {
	case <-d.now:
		<-d.done
		return 0, net.ErrClosed
	default:
		return d.Conn.Read(p)
	}
}

// Dial implements nats.CustomDialer.
func (d deaf) Dial(network, address string) (net.Conn, error) {
	var err error
	d.Conn, err = new(net.Dialer).Dial(network, address)
	return d, err
}

// stopsReading connects a node that subscribes to its inbox and then reads nothing more.
func stopsReading(t *testing.T, bus *bustest.Bus) (node bustest.Node) {
	t.Helper()
	d := deaf{now: make(chan struct{}), done: make(chan struct{})}
	t.Cleanup(func() { close(d.done) })
	node = bus.Join(t, "evil")
	nc, err := bus.Raw(t, node, nats.SetCustomDialer(d))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nc.SubscribeSync("i." + string(node.Key) + ".x"); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
	close(d.now)
	return node
}

// sendTo sends this number of MiB to the inbox of a node.
func sendTo(t *testing.T, bus *bustest.Bus, node bustest.Node, mib int) {
	t.Helper()
	nc := bus.Nodes(t)
	for range mib * 8 {
		if err := nc.Publish("i."+string(node.Key)+".x", make([]byte, 128<<10)); err != nil {
			t.Fatal(err)
		}
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// One connection answers all nodes. TestANodeThatReadsNothingStallsNobody checks that this connection
// does not wait for a node that reads nothing.
func TestANodeThatReadsNothingStallsNobody(t *testing.T) {
	bus := bustest.Start(t)
	sendTo(t, bus, stopsReading(t, bus), 60)
	if n := bus.Server.Stalls(); n != 0 {
		t.Errorf("the bus made other clients wait %d times", n)
	}
}

// TestANodeThatReadsNothingIsPutOut checks that the server ends the connections of a node that leaves
// many answers unread. A slow node may leave 16 answers unread.
func TestANodeThatReadsNothingIsPutOut(t *testing.T) {
	bus := bustest.Start(t)
	denied := make(chan string, 10)
	visitors := natsbus.NewVisitors(natsbus.VisitorOptions{
		Disconnect: bus.Server.Disconnect, Denied: func(key tutti.NodeKey, what string) { denied <- string(key) + ": " + what },
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	system := bus.System(t)
	go func() { ended <- visitors.Watch(ctx, system) }()
	looks := make(chan struct{}, 100)
	go func() {
		bus.Server.Guard(ctx, embed.GuardOptions{Violated: visitors.Violated, Unread: func(jwt string) {
			looks <- struct{}{}
			visitors.Unread(jwt)
		}})
		ended <- nil
	}()
	defer func() {
		cancel()
		for range 2 {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}()
	evil := stopsReading(t, bus)
	sendTo(t, bus, evil, 2)
	if len(looks) > 0 {
		t.Error("a node that has 16 answers left is put out")
	}
	sendTo(t, bus, evil, 24) // more than the limit, because the system's buffers take some MiB
	within, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	select {
	case got := <-denied:
		if want := string(evil.Key) + ": leave more than 4 MiB of answers unread; the server closes its connections for some time"; got != want {
			t.Errorf("told of %q, want %q", got, want)
		}
	case <-within.Done():
		t.Fatal("the node may leave 24 MiB unread")
	}
	for bus.Server.Unread() > 4<<20 {
		if within.Err() != nil {
			t.Fatalf("%d bytes are still kept", bus.Server.Unread())
		}
	}
}
