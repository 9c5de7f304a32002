package server_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `order` asks for a run and returns the order of the run. The function returns nil if there is no order
// yet.
func order(t *testing.T, n *servertest.Node) *tutti.Order {
	t.Helper()
	var out wire.Claimed
	if err := n.Call(wire.OpClaim, n.Agent, &out); err != nil {
		t.Fatal(err)
	}
	return out.Order
}

// The function `come` makes a machine say hello.
func come(t *testing.T, n *servertest.Node, next, boot string) {
	t.Helper()
	if err := n.Hello(ticket(next), boot); err != nil {
		t.Fatal(err)
	}
}

// TestAThiefOfAKeyGetsNoOrder checks a thief who has only the node's key, or a copy of its disk. The server accepts
// the thief as the node for a moment. But the real node is running, and the server accepts it again before the thief
// gets an order. If the thief goes on, the server notices two machines.
func TestAThiefOfAKeyGetsNoOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t)
		come(t, f.db, "own", "boot")
		thief := *f.db
		thief.Ticket = ""
		f.converge()
		for i := range 3 {
			thief.Ticket = "" // the server would notice the thief at once if he used his new ticket
			come(t, &thief, fmt.Sprint("thief ", i), "other")
			if got := order(t, &thief); got != nil {
				t.Fatalf("the thief is given run %s the %d. time", got.Run, i+1)
			}
			wantCode(t, f.db.Call(wire.OpClaim, f.db.Agent, nil), tutti.CodeUnavailable, "say hello first")
			come(t, f.db, fmt.Sprint("own ", i), "boot")
			for range 8 {
				time.Sleep(10 * time.Second)
				wantCode(t, f.db.Call(wire.OpBeat, wire.Beat{}, nil), "", "")
			}
		}
		if got := order(t, f.db); got == nil {
			t.Fatal("the node is given no order")
		}
		thief.Ticket = ""
		come(t, &thief, "once more", "other")
		wantCode(t, f.db.Hello(ticket("back"), "boot"), tutti.CodeRefused, "more than 3 times in an hour")
		wantCode(t, thief.Call(wire.OpClaim, thief.Agent, nil), tutti.CodeRefused, "two machines have the key")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestAMachineThatWasPutBackGetsItsOrder checks a machine that was set back while no other machine acts as the node.
func TestAMachineThatWasPutBackGetsItsOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFenced(t)
		come(t, f.db, "own", "boot")
		f.converge()
		f.db.Ticket = ""
		rung := 0
		f.Bus.Listen(f.db.Key, func(op string, _ []byte) {
			if op == wire.RingClaim {
				rung++
			}
		})
		come(t, f.db, "put back", "boot")
		if got := order(t, f.db); got != nil {
			t.Fatalf("it is given run %s at once, and nobody knows whether the other one lives", got.Run)
		}
		time.Sleep(11 * time.Second)
		synctest.Wait()
		if got := order(t, f.db); got == nil || rung == 0 {
			t.Errorf("order %v, %d doorbells", got, rung)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestANodeThatCannotKeepItsTicket checks a node that uses the same ticket again and again. Such a
// node does not count as another machine.
func TestANodeThatCannotKeepItsTicket(t *testing.T) {
	f := newFenced(t)
	come(t, f.db, "kept", "boot")
	for i := range 6 {
		f.db.Ticket = ticket("kept")
		come(t, f.db, fmt.Sprint("lost ", i), "boot")
	}
}
