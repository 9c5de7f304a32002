package attack

import (
	"crypto/tls"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

const (
	// crowd is the number of strangers who finish TLS and begin to enrol. crowd is several times the
	// number that the server allows, and more than the file limit of the second server.
	// ATTACK_STRANGERS sets another number.
	crowd = 4000
	// crowdAgain is the average time after which a disconnected stranger connects again. TLS costs
	// both sides CPU time, and both sides run on the same machine.
	crowdAgain = 20 * time.Second
	// crowdMemory is the largest amount of memory that the strangers may cost the server.
	crowdMemory = 50 << 20
)

// The function `strangers` returns the number of strangers in the test.
func strangers(t *testing.T) int {
	t.Helper()
	text := os.Getenv("ATTACK_STRANGERS")
	if text == "" {
		return crowd
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < crowd {
		t.Fatalf("ATTACK_STRANGERS %q: a number from %d", text, crowd)
	}
	return n
}

// TestStrangersWhoFinishTLS plays strangers without a certificate, who finish TLS, begin an
// enrolment and then send nothing. The connections of the strangers must cost the server little
// memory. No request of another client may fail. The server must continue even if there are more strangers than files
// that it may open.
func TestStrangersWhoFinishTLS(t *testing.T) {
	count := strangers(t)
	moreFiles(t, count)
	for _, limit := range []int{0, 3000} {
		t.Run(fmt.Sprintf("files=%d", limit), func(t *testing.T) {
			f := startWith(t, limit)
			memory := f.memory()
			config := f.trusting(t)
			config.ServerName = "127.0.0.1"
			config.ClientSessionCache = nil
			flood := newFlood(t, count, 8*runtime.NumCPU(), crowdAgain, f.https, func(c net.Conn) error {
				_ = c.SetDeadline(time.Now().Add(20 * time.Second))
				defer func() { _ = c.SetDeadline(time.Time{}) }()
				_, err := fmt.Fprint(tls.Client(c, config), "POST /v1/enrol HTTP/1.1\r\nHost: "+f.https+"\r\nContent-Length: 15000\r\n\r\n{")
				return err
			})
			flood.full()
			f.works("during")
			for i := range 5 {
				// the new nodes have the same address as the strangers
				fresh := f.join(tutti.NodeName([]string{"taken", "b", "c", "d", "e"}[i]))
				if err := fresh.call(t.Context(), wire.OpClaim, wire.Claim{}, nil); err != nil {
					t.Errorf("a node that comes now: %v", err)
				}
				if _, err := f.issued(fmt.Sprintf("bob-%d", i)).ListJobs(t.Context()); err != nil {
					t.Errorf("an operator who comes now: %v", err)
				}
			}
			f.works("still during")
			if more := f.memory() - memory; more > crowdMemory {
				t.Errorf("the server took %d MiB more", more>>20)
			} else {
				t.Logf("%d strangers: the server took %d MiB more, %d files", count, more>>20, f.files())
			}
			flood.end()
			f.works("after")
		})
	}
}
