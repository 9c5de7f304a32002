package natsbus

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

// TestWhatIsTooMuch checks the limits: a number of calls at once and a number of calls each second. A
// node that exceeds a limit is locked out, each time for longer than the time before.
func TestWhatIsTooMuch(t *testing.T) {
	e, now := newExcess(), time.Unix(1e9, 0)
	const node, other = tutti.NodeKey("A"), tutti.NodeKey("B")
	send := func(key tutti.NodeKey, count, bytes int) (first int) {
		t.Helper()
		for i := range count {
			if out, since := e.more(key, bytes, now); out != e.isOut(key, now) {
				t.Fatalf("message %d: out %v, and asked %v", i, out, !out)
			} else if since {
				return i + 1
			}
		}
		return 0
	}
	pass := func(d time.Duration) { now = now.Add(d) }
	if got := send(node, excessCalls, 0); got != 0 {
		t.Errorf("out at message %d, which is no more than it may", got)
	}
	for range 60 { // the calls of a host that compiles for other nodes are below the limits
		pass(time.Second)
		if got := send(node, excessCallsEach, 4<<10); got != 0 {
			t.Fatalf("out at message %d of a second", got)
		}
	}
	if got := send(node, excessCalls, 0); got != 1 {
		t.Errorf("out at message %d, want the next one", got)
	}
	if got := send(other, excessBytes>>20, 1<<20); got != 0 {
		t.Errorf("another node is out at megabyte %d", got)
	}
	if got := send(other, 1, 1<<20); got != 1 {
		t.Error("a node that has sent too many bytes is not out")
	}
	for _, wait := range []time.Duration{outFor, 2 * outFor, 4 * outFor, 8 * outFor, 16 * outFor, 32 * outFor, 64 * outFor, outAtMost, outAtMost, outAtMost} {
		pass(wait - time.Nanosecond)
		if !e.isOut(node, now) {
			t.Errorf("in again before %s", wait)
		}
		pass(time.Nanosecond)
		if e.isOut(node, now) {
			t.Errorf("out for more than %s", wait)
		}
		send(node, excessCalls+1, 0)
	}
	pass(3 * outAtMost)
	send(other, 1, 0)
	if len(e.of) != 1 {
		t.Errorf("%d nodes are remembered, want the one that has sent something", len(e.of))
	}
}
