package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/wire"
)

// hellos returns the first n hellos that the line has carried, in order.
func (l *lab) hellos(n int) (out []wire.Hello) {
	l.t.Helper()
	for i := range n {
		l.line.until(wire.OpHello, i+1)
		var h wire.Hello
		if err := json.Unmarshal(l.line.payloads(wire.OpHello)[i], &h); err != nil {
			l.t.Fatal(err)
		}
		out = append(out, h)
		if i+1 < n {
			l.kill()
			l.start()
		}
	}
	return out
}

// TestATicketIsAskedForAgain: an agent is killed before it gets the answer to its exchange. The next
// agent asks for the same ticket, whether or not the server got the request. After that, the agent
// uses this ticket.
func TestATicketIsAskedForAgain(t *testing.T) {
	for name, answered := range map[string]bool{"the server has not heard of it": false, "its answer is lost": true} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, applies)
			stop := l.line.stopAt(wire.OpHello, answered)
			l.start()
			<-stop.reached
			said := l.hellos(2)
			if said[0].Next == "" || said[1] != said[0] {
				t.Errorf("asked for %+v, and again for %+v", said[0], said[1])
			}
			if got := l.end(l.job()); got.Outcome != tutti.Changed {
				t.Errorf("result %+v", got)
			}
			if v := l.view(); v.Conflicted != "" {
				t.Errorf("one machine by itself is %q", v.Conflicted)
			}
		})
	}
}

// TestAServerThatKeepsNoTickets tests a server of release 0.2.0 or earlier, which
// does not know tickets.
func TestAServerThatKeepsNoTickets(t *testing.T) {
	l := newLab(t, applies)
	l.line.refuseWith(wire.OpHello, tutti.Errorf(tutti.CodeInvalid, "operation %q is not known to this server", wire.OpHello))
	l.start()
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
}

// TestAMachineThatIsNotTheNodeSaysSo: a machine that the server refuses reports
// this as its trouble and runs nothing.
func TestAMachineThatIsNotTheNodeSaysSo(t *testing.T) {
	l := newLab(t, applies)
	l.line.refuseWith(wire.OpHello, tutti.Errorf(tutti.CodeRefused, "two machines have the key of node db-01"))
	l.start(quick)
	l.job()
	l.troubled("two machines have the key")
	if n := l.line.count(wire.OpClaim); n != 0 || l.ruby.started() != 0 {
		t.Errorf("it claimed %d times and ran %d times", n, l.ruby.started())
	}
}

// TestATicketThatNobodyKeeps: the disk is full, so the agent cannot write the ticket. The node still
// works with its server, and the agent does not ask for tickets in an endless loop.
func TestATicketThatNobodyKeeps(t *testing.T) {
	l := newLab(t, applies)
	l.start()
	l.line.until(wire.OpClaim, 1)
	l.kill()
	path := filepath.Join(l.dir, "ticket.json")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(path, "full"), 0o700); err != nil { // a directory with this name prevents the agent from writing the file
		t.Fatal(err)
	}
	n, c := l.line.count(wire.OpHello), l.line.count(wire.OpClaim)
	l.start()
	l.line.until(wire.OpClaim, c+1)
	l.line.settle()
	if got := l.line.count(wire.OpHello) - n; got > 4 {
		t.Errorf("%d hellos", got)
	}
	if v := l.view(); v.Conflicted != "" {
		t.Errorf("one machine by itself is %q", v.Conflicted)
	}
}
