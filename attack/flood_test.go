package attack

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

// halfOpen is how many connections never finish TLS.
const halfOpen = 10_000

// TestHalfOpenConnections: ten thousand connections that never finish TLS, on each
// port, keep nobody out and do not fill the server: it lets of one source so many
// stay and no more.
func TestHalfOpenConnections(t *testing.T) {
	moreFiles(t)
	for _, tc := range []struct {
		name  string
		port  func(f *fleet) string
		audit string
	}{
		{"operators", func(f *fleet) string { return f.https }, "finish TLS with the operators' port"},
		{"nodes", func(f *fleet) string { return f.bus }, "finish TLS with the nodes' port"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := start(t)
			files, memory := f.files(), f.memory()
			var conns []net.Conn
			var mu sync.Mutex
			t.Cleanup(func() {
				for _, c := range conns {
					c.Close()
				}
			})
			var wait sync.WaitGroup
			for range 20 {
				wait.Go(func() {
					for range halfOpen / 20 {
						c, err := net.Dial("tcp", tc.port(f))
						if err != nil {
							t.Errorf("the port takes no connections: %v", err)
							return
						}
						mu.Lock()
						conns = append(conns, c)
						mu.Unlock()
						_, _ = c.Write([]byte{0x16, 3, 1}) // the beginning of a hello
					}
				})
			}
			most := f.mostFiles(&wait)
			f.works("during") // over connections that are there
			wait.Wait()
			if more := <-most - files; more > halfOpen/2 {
				t.Errorf("the server had %d files open more than before", more)
			}
			if len(conns) != halfOpen {
				t.Fatalf("only %d connections were made", len(conns))
			}
			// New ones, on both ports, from the attacker's own address.
			fresh := f.join("taken")
			if err := fresh.call(t.Context(), tutti.OpClaim, tutti.Claim{}, nil); err != nil {
				t.Errorf("a node that comes now: %v", err)
			}
			if _, err := f.issued("bob").ListJobs(t.Context()); err != nil {
				t.Errorf("an operator who comes now: %v", err)
			}
			f.eventually(func() error {
				if more := f.files() - files; more > 300 {
					return fmt.Errorf("the server has %d files open more than before", more)
				}
				return nil
			})
			if more := f.memory() - memory; more > 400<<20 {
				t.Errorf("the server took %d MiB more", more>>20)
			}
			f.audited(denial{"address:127.0.0.1", tc.audit, ""})
			if told := f.count(func(b tutti.Body) bool { d, ok := b.(*tutti.Denied); return ok && d.What == tc.audit }); told > 5 {
				t.Errorf("the audit log has it %d times", told)
			}
			f.works("after")
		})
	}
}

// moreFiles lets this process open enough.
func moreFiles(t *testing.T) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Max < halfOpen+1000 {
		t.Fatalf("this process may open %d files, the test needs %d: ulimit -n", limit.Max, halfOpen+1000)
	}
	limit.Cur = limit.Max
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
}

// files is how many files the server has open.
func (f *fleet) files() int {
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", f.process.Process.Pid))
	if err != nil {
		f.t.Error(err)
	}
	return len(entries)
}

// mostFiles is how many files the server has open at most, until all have come by.
func (f *fleet) mostFiles(until *sync.WaitGroup) <-chan int {
	most, done := make(chan int, 1), make(chan struct{})
	go func() { until.Wait(); close(done) }()
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		n := 0
		for {
			n = max(n, f.files())
			select {
			case <-done:
				most <- n
				return
			case <-tick.C:
			}
		}
	}()
	return most
}

// memory is the most that the server has had resident, in bytes.
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
