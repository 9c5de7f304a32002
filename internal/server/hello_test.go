package server_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `ticket` returns a ticket for tests. It is as long as a real ticket.
func ticket(name string) string { return name + strings.Repeat(".", 40) }

// The function `copied` makes a copy of a node's machine, and both copies send messages. After the call, `n` is the
// second copy, and `first` is the first one.
func copied(t *testing.T, n *servertest.Node) (first *servertest.Node) {
	t.Helper()
	if err := n.Hello(ticket("t1"), "boot-0"); err != nil {
		t.Fatal(err)
	}
	first = new(servertest.Node)
	*first = *n
	if err := n.Hello(ticket("t2"), "boot-2"); err != nil {
		t.Fatal(err)
	}
	if err := first.Call(wire.OpBeat, wire.Beat{}, nil); tutti.CodeOf(err) != tutti.CodeUnavailable {
		t.Fatalf("the first machine, whose ticket was exchanged by its copy: %v", err)
	}
	if err := first.Hello(ticket("t3"), "boot-1"); err != nil { // before this call there may also be only one machine that was set back
		t.Fatal(err)
	}
	if err := n.Hello(ticket("t4"), "boot-2"); err != nil { // before this call somebody may also be switching one machine between snapshots
		t.Fatal(err)
	}
	if err := first.Call(wire.OpBeat, wire.Beat{}, nil); tutti.CodeOf(err) != tutti.CodeRefused {
		t.Fatalf("both machines live, and take turns: %v", err)
	}
	return first
}

// If two machines have the same key, the server accepts no message from these machines until an
// operator has decided which machine is the node (finding F2).
func TestTwoMachinesWithOneKey(t *testing.T) {
	f := newFenced(t)
	second := f.db
	f.converge()
	first := copied(t, second)
	for name, n := range map[string]*servertest.Node{"the first": first, "the copy": second} {
		for op, in := range map[string]any{wire.OpClaim: n.Agent, wire.OpBeat: wire.Beat{}, wire.OpCode: wire.CodeGet{}, wire.OpBlobGet: wire.BlobGet{}} {
			wantCode(t, n.Call(op, in, nil), tutti.CodeRefused, "two machines have the key of node db-01")
		}
		wantCode(t, n.Hello(ticket("other"), "boot-3"), tutti.CodeRefused, "tutti node keep db-01 BOOT")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	view := func() api.NodeView {
		nodes, err := f.ListNodes(servertest.Operator())
		if err != nil || len(nodes) != 1 {
			t.Fatal(nodes, err)
		}
		return nodes[0]
	}
	if v := view(); v.Conflicted == "" || len(v.Machines) < 2 {
		t.Errorf("the list says %q of machines %v", v.Conflicted, v.Machines)
	}
	f.restart()
	first.Fleet, second.Fleet = f.Fleet, f.Fleet
	wantCode(t, second.Call(wire.OpClaim, second.Agent, nil), tutti.CodeRefused, "two machines")
	wantCode(t, f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01"}), tutti.CodeInvalid, "say which one")
	wantCode(t, f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01", Boot: "boot-2"}), tutti.CodeNotFound, "said hello")
	for n, boot := range map[*servertest.Node]string{first: "boot-1", second: "boot-2"} {
		wantCode(t, n.Hello(ticket("again"), boot), tutti.CodeRefused, "two machines")
	}
	wantCode(t, f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01", Boot: "boot-"}), tutti.CodeInvalid, "more than one")
	if err := f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01", Boot: "boot-2"}); err != nil {
		t.Fatal(err)
	}
	if v := view(); v.Conflicted != "" {
		t.Errorf("after one was kept: %q", v.Conflicted)
	}
	if err := second.Hello(ticket("t6"), "boot-2"); err != nil {
		t.Fatal(err)
	}
	if second.Claim() == nil {
		t.Error("the machine that was kept has no run")
	}
	wantCode(t, first.Call(wire.OpClaim, first.Agent, nil), tutti.CodeRefused, "an operator has kept another machine")
	wantCode(t, first.Hello(ticket("t5"), "boot-1"), tutti.CodeRefused, "an operator has kept another machine")
	if second.Claim() == nil {
		t.Error("the machine that was put out has put out the other one")
	}
}

// TestNoNodeIsGoodThatIsTwoMachines checks that a node with two machines is not good, because the server's data is
// about only one of the machines. After an operator has kept one machine, the node is good again.
func TestNoNodeIsGoodThatIsTwoMachines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newFactsHouse(t)
		h.db.Claim()
		h.converge()
		h.pass("before")
		h.wants(api.NodeGood, "")
		first := copied(t, h.db)
		if s := h.standing(); s.State != api.NodeSuspect || s.Needs != "proof" || !strings.Contains(s.Why, "two machines") {
			t.Errorf("it is two machines, and %+v", s)
		}
		h.must(h.f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01", Boot: "boot-1"}))
		h.must(first.Hello(ticket("t5"), "boot-1"))
		h.wants(api.NodeGood, "")
	})
}

// While a copy may be running, no run of the node passes its gate. The test has a run that waits and a held run.
func TestNoGateLetsANodeGoThatIsTwoMachines(t *testing.T) {
	f := newFenced(t)
	f.converge()
	if err := f.db.Hello(ticket("t1"), "boot-1"); err != nil {
		t.Fatal(err)
	}
	order := f.claim()
	first := *f.db
	if err := f.db.Hello(ticket("t2"), "boot-2"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, first.Call(wire.OpGate, full(order.Run), nil), tutti.CodeUnavailable, "say hello")
	if err := first.Hello(ticket("t3"), "boot-1"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, f.db.Call(wire.OpGate, full(order.Run), nil), tutti.CodeUnavailable, "say hello")
	if err := f.db.Hello(ticket("t4"), "boot-2"); err != nil {
		t.Fatal(err)
	}
	wantCode(t, first.Call(wire.OpGate, full(order.Run), nil), tutti.CodeRefused, "two machines")
	wantCode(t, f.db.Call(wire.OpGate, full(order.Run), nil), tutti.CodeRefused, "two machines")
	wantCode(t, first.Call(wire.OpGate, full(order.Run), nil), tutti.CodeRefused, "two machines")
	wantCode(t, first.Call(wire.OpResult, servertest.Result(order.Run, tutti.Changed), nil), tutti.CodeUnauthenticated, "two machines")
	if got := f.ending(order.Run); got != "" {
		t.Errorf("run %s ended %s", order.Run, got)
	}
}

// TestNothingIsLostOfANodeThatWasTwoMachines checks the messages that both machines send before an operator decides.
// The server does not accept these messages, but tells the machines to send them again. After an operator has kept
// one machine, the server accepts the messages of this machine.
func TestNothingIsLostOfANodeThatWasTwoMachines(t *testing.T) {
	f := newFenced(t)
	f.converge()
	order := f.claim()
	f.db.Gate(full(order.Run))
	second := f.db
	first := copied(t, second)
	theirs, report := foreign(1, tutti.Changed)
	message, err := wire.EncodeForeign(theirs, report)
	if err != nil {
		t.Fatal(err)
	}
	tell := func(n *servertest.Node) map[string]error {
		_, foreignErr := f.Handle(wire.WithTicket(servertest.Operator(), n.Ticket), n.Key, wire.OpForeign, message)
		_, blobErr := f.Handle(wire.WithTicket(servertest.Operator(), n.Ticket), n.Key, wire.OpBlobPut, []byte("a log"))
		return map[string]error{
			wire.OpForeign: foreignErr, wire.OpBlobPut: blobErr,
			wire.OpPublish: n.Call(wire.OpPublish, wire.Publish{Run: order.Run, Key: "db/ready", Value: []byte("true")}, nil),
			wire.OpFacts:   n.Call(wire.OpFacts, tutti.FactsSeen{Run: order.Run, Facts: tutti.DigestOf(nil)}, nil),
			wire.OpResult:  n.Call(wire.OpResult, servertest.Result(order.Run, tutti.Changed), nil),
		}
	}
	refused := func(n *servertest.Node, who, says string) {
		t.Helper()
		for op, err := range tell(n) {
			if tutti.CodeOf(err) != tutti.CodeUnauthenticated || !strings.Contains(err.Error(), says) {
				t.Errorf("%s tells %s: %v, want %s, %s", who, op, err, tutti.CodeUnauthenticated, says)
			}
		}
	}
	refused(first, "the first machine", "two machines")
	refused(second, "its copy", "two machines")
	if err := f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01", Boot: "boot-2"}); err != nil {
		t.Fatal(err)
	}
	if err := second.Hello(ticket("t6"), "boot-2"); err != nil {
		t.Fatal(err)
	}
	refused(first, "the machine that was not kept", "an operator has kept another machine")
	if err := tell(second)[wire.OpResult]; err != nil {
		t.Errorf("the machine that was kept tells its result: %v", err)
	}
	if got := f.ending(order.Run); got != "changed" {
		t.Errorf("run %s ended %q, want changed", order.Run, got)
	}
	if log := foreignIn(f.Events()); !slices.Contains(log, theirs.Result.Run) {
		t.Errorf("told %v: the foreign run is lost", log)
	}
}

func foreignIn(events []tutti.Event) (out []tutti.RunID) {
	for _, e := range events {
		if b, is := e.Body.(*tutti.RunForeign); is {
			out = append(out, b.Result.Run)
		}
	}
	return out
}

// A single machine never counts as two, even if it loses its ticket.
func TestOneMachineIsNoConflict(t *testing.T) {
	hello := func(f *fenced, next string) {
		f.t.Helper()
		if err := f.db.Hello(ticket(next), "boot"); err != nil {
			f.t.Fatal(err)
		}
	}
	cases := map[string]func(f *fenced){
		"the answer was lost": func(f *fenced) {
			before := f.db.Ticket
			hello(f, "b")
			f.db.Ticket = before
			n := len(f.Events())
			hello(f, "b")
			if got := f.Since(n); len(got) != 0 {
				f.t.Errorf("said again: %v", got)
			}
		},
		"its disk was set back": func(f *fenced) {
			before := f.db.Ticket
			hello(f, "b")
			hello(f, "c")
			f.db.Ticket = before
			hello(f, "d")
		},
		"it goes to and fro between two snapshots": func(f *fenced) {
			first := f.db.Ticket
			hello(f, "b")
			second := f.db.Ticket
			f.db.Ticket = first
			hello(f, "c")
			f.db.Ticket = second
			hello(f, "d")
		},
		"its ticket was lost": func(f *fenced) {
			f.db.Ticket = ""
			hello(f, "b")
		},
		"the server was restored": func(f *fenced) {
			f.db.Ticket = ticket("of a lost event")
			hello(f, "b")
		},
		"it has joined again": func(f *fenced) {
			if err := f.RemoveNode(servertest.Operator(), "db-01"); err != nil {
				f.t.Fatal(err)
			}
			before := *f.db
			f.db = f.Join("db-01")
			f.db.Agent, f.db.Ticket = before.Agent, before.Ticket
			hello(f, "b")
		},
	}
	for name, happens := range cases {
		t.Run(name, func(t *testing.T) {
			f := newFenced(t)
			hello(f, "a")
			happens(f)
			f.claim()
			f.restart()
			f.claim()
			hello(f, "z")
			f.claim()
		})
	}
}

// An agent of an earlier release has no tickets. If an agent was downgraded, an operator must let its node in again.
func TestAnAgentWithoutATicket(t *testing.T) {
	f := newFenced(t)
	f.claim()
	if err := f.db.Hello(ticket("a"), "boot"); err != nil {
		t.Fatal(err)
	}
	f.db.Ticket = ""
	// The server has heard a hello recently, so the claim without a ticket may be older than that
	// hello.
	wantCode(t, f.db.Call(wire.OpClaim, f.db.Agent, nil), tutti.CodeUnavailable, "say hello")
	f.restart()
	wantCode(t, f.db.Call(wire.OpClaim, f.db.Agent, nil), tutti.CodeRefused, "tutti node keep db-01")
	if err := f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01"}); err != nil {
		t.Fatal(err)
	}
	f.claim()
}

// The server refuses a hello that no agent would send, and this hello has no effect.
func TestHellosThatAreNone(t *testing.T) {
	f := newFenced(t)
	n := len(f.Events())
	for name, in := range map[string]wire.Hello{
		"no ticket":   {},
		"a short one": {Next: "x"},
		"a long one":  {Next: strings.Repeat("x", 1000)},
		"the same":    {Ticket: ticket("a"), Next: ticket("a")},
		"a long host": {Next: ticket("a"), Host: strings.Repeat("x", 1000)},
	} {
		if err := f.db.Call(wire.OpHello, in, nil); tutti.CodeOf(err) != tutti.CodeInvalid {
			t.Errorf("%s: %v", name, err)
		}
	}
	if diff := cmp.Diff([]string(nil), f.Since(n)); diff != "" {
		t.Error(diff)
	}
}

// Each exchange of a ticket is an event, so the number of exchanges is limited. Without this limit a node could fill
// the log.
func TestANodeCannotFillTheLogWithHellos(t *testing.T) {
	f := newFenced(t)
	n := len(f.Events())
	refused := 0
	for i := range 100 {
		if err := f.db.Hello(ticket(fmt.Sprint(i)), "boot"); tutti.CodeOf(err) == tutti.CodeUnavailable {
			refused++
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if got := len(f.Since(n)); got > 30 || got+refused != 100 {
		t.Errorf("%d events, %d hellos refused", got, refused)
	}
	f.claim() // the node still has its present ticket
}

// Somebody has the key of a node but none of its tickets. They say hello again and again, so that the server forgets
// the node's own tickets. The server must see two machines, and not one machine that was set back.
func TestAKeyWithoutATicket(t *testing.T) {
	f := newFenced(t)
	if err := f.db.Hello(ticket("own"), "boot"); err != nil {
		t.Fatal(err)
	}
	thief := *f.db
	for i := range 3 {
		thief.Ticket = ""
		if err := thief.Hello(ticket(fmt.Sprint("thief ", i)), "other"); err != nil {
			t.Fatal(err)
		}
	}
	thief.Ticket = ""
	wantCode(t, thief.Hello(ticket("once more"), "other"), tutti.CodeRefused, "more than 3 times in a minute")
	for name, n := range map[string]*servertest.Node{"the node": f.db, "the thief": &thief} {
		wantCode(t, n.Call(wire.OpClaim, n.Agent, nil), tutti.CodeRefused, "none of its tickets")
		if t.Failed() {
			t.Fatal(name)
		}
	}
	if err := f.KeepNode(servertest.Operator(), api.KeepNode{Node: "db-01", Boot: "boot"}); err != nil {
		t.Fatal(err)
	}
	f.claim()
}
