package attack

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

const (
	// halfOpen is the number of connections that never finish TLS.
	halfOpen = 10_000
	// comesAgain is the average time after which a disconnected connection is made again.
	comesAgain = 2 * time.Second
	// slack is the allowed number of open files above the server's bound. slack covers connections that
	// have just arrived.
	slack = 3000
)

// TestHalfOpenConnections opens ten thousand connections from one address to each port. The
// connections never finish TLS, and they come again as soon as the server disconnects them. During
// this attack runs must succeed, and nodes and operators from the same address must be able to
// connect. The server must keep only a limited number of half-open connections.
func TestHalfOpenConnections(t *testing.T) {
	moreFiles(t, halfOpen)
	for _, tc := range []struct {
		name  string
		port  func(f *fleet) string
		bound int
		// within is a time limit. It is shorter than the server's own TLS deadline. So if the server disconnects
		// within this time, the reason is its limit of connections.
		within time.Duration
		audit  string
		files  int // files is the server's limit of open files. 0 means the limit of the test process.
	}{
		{"operators", func(f *fleet) string { return f.https }, 1024, 8 * time.Second, "finish TLS with the operators' port", 0},
		{"nodes", func(f *fleet) string { return f.bus }, 4096, 18 * time.Second, "finish TLS with the nodes' port", 0},
		{"nodes, and few files", func(f *fleet) string { return f.bus }, 750, 18 * time.Second, "finish TLS with the nodes' port", 3000},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := startWith(t, tc.files)
			files, memory := f.files(), f.memory()
			began := time.Now()
			flood := newFlood(t, halfOpen, halfOpen, comesAgain, tc.port(f), beginTLS)
			flood.full()
			f.holdsNoMore(files+tc.bound+slack, began.Add(tc.within))
			f.works("during") // over existing connections
			fresh := f.join("taken")
			f.eventually(func() error { // a real agent also tries again after a lost connection
				if err := fresh.call(t.Context(), wire.OpClaim, wire.Claim{}, nil); err != nil {
					return fmt.Errorf("a node that comes now: %w", err)
				}
				return nil
			})
			if _, err := f.issued("bob").ListJobs(t.Context()); err != nil {
				t.Errorf("an operator who comes now: %v", err)
			}
			f.works("still during")
			flood.end()
			if more := f.memory() - memory; more > 400<<20 {
				t.Errorf("the server took %d MiB more", more>>20)
			}
			f.eventually(func() error {
				if more := f.files() - files; more > 300 {
					return fmt.Errorf("the server has %d files open more than before", more)
				}
				return nil
			})
			f.audited(denial{"address:127.0.0.1", tc.audit, ""})
			if told := f.count(func(b tutti.Body) bool { d, ok := b.(*tutti.Denied); return ok && d.What == tc.audit }); told > 5 {
				t.Errorf("the audit log has it %d times", told)
			}
			f.works("after")
		})
	}
}

// beginTLS sends the first bytes of a TLS hello.
func beginTLS(c net.Conn) error {
	_, err := c.Write([]byte{0x16, 3, 1})
	return err
}

// flood is a large number of connections that send one text and then nothing.
type flood struct {
	t     *testing.T
	end   func()         // end closes all connections of the flood and waits for their end.
	first sync.WaitGroup // The wait group `first` is done when each connection was made once.
	made  atomic.Int64
	// slots limits concurrent dials, because the server disconnects connections that wait too long in
	// TLS.
	slots chan struct{}
}

// newFlood makes the given number of connections. If the server disconnects a connection, newFlood
// connects again. The argument `again` is the average pause before newFlood connects again.
func newFlood(t *testing.T, count, atOnce int, again time.Duration, port string, say func(net.Conn) error) *flood {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &flood{t: t, slots: make(chan struct{}, atOnce)}
	var all sync.WaitGroup
	f.end = func() { cancel(); all.Wait() }
	t.Cleanup(f.end)
	for range count {
		f.first.Add(1)
		all.Go(func() { f.hold(ctx, again, port, say) })
	}
	return f
}

// The method `hold` keeps one connection open.
func (f *flood) hold(ctx context.Context, again time.Duration, port string, say func(net.Conn) error) {
	first := sync.OnceFunc(f.first.Done)
	defer first()
	for ctx.Err() == nil {
		f.slots <- struct{}{}
		release := sync.OnceFunc(func() { <-f.slots })
		if c, err := new(net.Dialer).DialContext(ctx, "tcp", port); err == nil {
			stop := context.AfterFunc(ctx, func() { c.Close() })
			err := say(c)
			release()
			if err == nil {
				f.made.Add(1)
				first()
				_, _ = c.Read(make([]byte, 1)) // the read returns when the server disconnects
			}
			stop()
			_ = c.(*net.TCPConn).SetLinger(0) // free the local port at once, because there are few ports
			c.Close()
		}
		release()
		select {
		case <-ctx.Done():
		case <-time.After(again/2 + rand.N(again)): //nolint:gosec // spreads them, keeps no secret
		}
	}
}

// The method `full` waits until the flood has made each connection once.
func (f *flood) full() {
	f.t.Helper()
	all := make(chan struct{})
	go func() { f.first.Wait(); close(all) }() // the end of the flood also ends this goroutine
	select {
	case <-all:
	case <-time.After(patience):
		f.t.Fatalf("waited %s for all connections: %d were made", patience, f.made.Load())
	}
}

// moreFiles raises the file limit of the test process.
func moreFiles(t *testing.T, count int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < uint64(count)+1000 {
		t.Fatalf("this process may open %d files, the test needs %d: ulimit -n", limit.Max, count+1000)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// The method `files` returns the number of files that the server has open.
func (f *fleet) files() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.process.Process.Pid))
	if err != nil {
		f.t.Error(err)
	}
	return len(entries)
}

// holdsNoMore waits until the server has at most the given number of files open. holdsNoMore checks
// this at least once.
func (f *fleet) holdsNoMore(most int, until time.Time) {
	f.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for now := f.files(); now > most; now = f.files() {
		if time.Now().After(until) {
			f.t.Fatalf("the server has %d files open, want at most %d", now, most)
		}
		<-tick.C
	}
}

// memory returns the largest resident memory of the server so far, in bytes.
func (f *fleet) memory() int {
	f.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", f.process.Process.Pid))
	if err != nil {
		f.t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	kib, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		f.t.Fatal(err)
	}
	return kib << 10
}
