package servertest

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/seal"
	"github.com/tutti-project/tutti/wire"
)

// Node is a machine that has joined.
type Node struct {
	Name  tutti.NodeName
	Key   tutti.NodeKey
	Fleet *Fleet
	Agent wire.Claim // what its agent says of itself; empty: one of release 0.2.0
	// Ticket is what its messages carry; empty: its agent keeps none.
	Ticket string
	// Machine is its installation, empty: its agent does not say.
	Machine tutti.Digest
}

// Join lets the machine of that name in, into groups that its token fixes.
func (f *Fleet) Join(name tutti.NodeName, groups ...tutti.GroupName) *Node {
	f.t.Helper()
	token, err := f.CreateToken(Operator(), api.CreateToken{Name: string(name), Groups: groups})
	if err != nil {
		f.t.Fatal(err)
	}
	n := f.Node(name)
	if _, err := f.Enrol(context.Background(), n.Request(token)); err != nil {
		f.t.Fatal(err)
	}
	return n
}

// Node returns a machine that has joined before.
func (f *Fleet) Node(name tutti.NodeName) *Node {
	return &Node{Name: name, Key: Key(string(name)), Fleet: f, Agent: wire.Claim{Knows: tutti.Capabilities()}}
}

// Request is what the machine sends to join with a token.
func (n *Node) Request(token api.CreatedToken) api.EnrolRequest {
	return SignEnrol(api.EnrolRequest{Token: token.Token, Secret: []byte(token.Text), Name: n.Name, Key: n.Key, BoxKey: seal.PublicKey(Box(string(n.Key)))})
}

// Call asks the server for an operation; out may be nil.
func (n *Node) Call(op string, in, out any) error {
	return n.CallWithin(context.Background(), op, in, out)
}

// CallWithin is Call, as long as ctx lasts.
func (n *Node) CallWithin(ctx context.Context, op string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	reply, err := n.Fleet.Handle(wire.WithTicket(ctx, n.Ticket), n.Key, op, raw)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(reply, out)
}

func (n *Node) must(t testing.TB, op string, in, out any) {
	t.Helper()
	if err := n.Call(op, in, out); err != nil {
		t.Fatalf("%s of %s: %v", op, n.Name, err)
	}
}

// Claim asks for work; nil: there is none.
func (n *Node) Claim() *tutti.Order {
	n.Fleet.t.Helper()
	var out wire.Claimed
	n.must(n.Fleet.t, wire.OpClaim, n.Agent, &out)
	return out.Order
}

// Claimed asks for work as Claim does; whoever may not ask has none.
func (n *Node) Claimed() *tutti.Order {
	var out wire.Claimed
	if n.Call(wire.OpClaim, n.Agent, &out) != nil {
		return nil
	}
	return out.Order
}

// MustClaim claims a run that must be there.
func (n *Node) MustClaim() tutti.Order {
	n.Fleet.t.Helper()
	o := n.Claim()
	if o == nil {
		n.Fleet.t.Fatalf("there is nothing to claim for %s", n.Name)
	}
	return *o
}

// Gate hands a compiled catalog over.
func (n *Node) Gate(in wire.Gate) wire.Gated {
	n.Fleet.t.Helper()
	var out wire.Gated
	n.must(n.Fleet.t, wire.OpGate, in, &out)
	return out
}

// Ask asks a question on behalf of a run.
func (n *Node) Ask(run tutti.RunID, q tutti.Query) wire.Answered {
	n.Fleet.t.Helper()
	var out wire.Answered
	n.must(n.Fleet.t, wire.OpAsk, wire.Ask{Run: run, Query: q, Opens: true}, &out)
	return out
}

// Read asks a question and returns it as a record has it.
func (n *Node) Read(run tutti.RunID, q tutti.Query) tutti.Read {
	n.Fleet.t.Helper()
	a := n.Ask(run, q)
	return tutti.Read{Query: q, Found: a.Found, Digest: a.Digest, Seq: a.Seq}
}

// Publish sets a value on behalf of a run.
func (n *Node) Publish(run tutti.RunID, key, value string) error {
	return n.Call(wire.OpPublish, wire.Publish{Run: run, Key: key, Value: json.RawMessage(value)}, nil)
}

// Hello exchanges the ticket, as an agent does that has connected.
func (n *Node) Hello(next, boot string) error {
	err := n.Call(wire.OpHello, wire.Hello{Ticket: n.Ticket, Next: next, Boot: boot, Host: string(n.Name), Machine: n.Machine}, nil)
	if err == nil {
		n.Ticket = next
	}
	return err
}

// Finish hands a result over that ended well.
func (n *Node) Finish(run tutti.RunID) {
	n.Fleet.t.Helper()
	n.must(n.Fleet.t, wire.OpResult, Result(run, tutti.Changed), nil)
}

// Forget makes the agent one of an earlier release, which does not know some things.
func (n *Node) Forget(version string, names ...tutti.Capability) {
	n.Agent = wire.Claim{Version: version, Knows: slices.DeleteFunc(tutti.Capabilities(), func(c tutti.Capability) bool { return slices.Contains(names, c) })}
}

// Pass claims a run, passes its gate and ends it well.
func (n *Node) Pass() tutti.Order {
	n.Fleet.t.Helper()
	o := n.MustClaim()
	n.Gate(wire.Gate{Run: o.Run})
	n.Finish(o.Run)
	return o
}

// Result is a result of one second, when the time of synctest begins; a failure is
// one of resources.
func Result(run tutti.RunID, outcome tutti.Outcome) tutti.Result {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	r := tutti.Result{Run: run, Outcome: outcome, StartedAt: start, EndedAt: start.Add(time.Second)}
	if outcome == tutti.Failed {
		r.Reason = tutti.BecauseResources
	}
	return r
}
