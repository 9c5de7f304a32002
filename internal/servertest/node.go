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

// Node is a machine that has joined the fleet.
type Node struct {
	Name  tutti.NodeName
	Key   tutti.NodeKey
	Fleet *Fleet
	Agent wire.Claim // Agent is the claim of the node's agent. If Agent is empty, the agent is of release 0.2.0.
	// Ticket is the ticket in the node's messages. Ticket is empty if the agent stores no ticket.
	Ticket string
	// Machine identifies the installation of the machine. Machine is empty if the agent does
	// not report its installation.
	Machine tutti.Digest
}

// Join lets the machine with that name join, with groups from its token.
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

// Node returns a machine that has already joined.
func (f *Fleet) Node(name tutti.NodeName) *Node {
	return &Node{Name: name, Key: Key(string(name)), Fleet: f, Agent: wire.Claim{Knows: tutti.Capabilities()}}
}

// Request returns the request with which the machine joins with a token.
func (n *Node) Request(token api.CreatedToken) api.EnrolRequest {
	return SignEnrol(api.EnrolRequest{Token: token.Token, Secret: []byte(token.Text), Name: n.Name, Key: n.Key, BoxKey: seal.PublicKey(Box(string(n.Key)))})
}

// Call sends a request to the server. The argument out may be nil.
func (n *Node) Call(op string, in, out any) error {
	return n.CallWithin(context.Background(), op, in, out)
}

// CallWithin is like Call, but ends with ctx.
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

// Claim asks for work. Claim returns nil if there is no work.
func (n *Node) Claim() *tutti.Order {
	n.Fleet.t.Helper()
	var out wire.Claimed
	n.must(n.Fleet.t, wire.OpClaim, n.Agent, &out)
	return out.Order
}

// Claimed is like Claim, but also returns nil if the server refuses the claim.
func (n *Node) Claimed() *tutti.Order {
	var out wire.Claimed
	if n.Call(wire.OpClaim, n.Agent, &out) != nil {
		return nil
	}
	return out.Order
}

// MustClaim claims a run and fails the test if there is no run.
func (n *Node) MustClaim() tutti.Order {
	n.Fleet.t.Helper()
	o := n.Claim()
	if o == nil {
		n.Fleet.t.Fatalf("there is nothing to claim for %s", n.Name)
	}
	return *o
}

// Gate sends the data of a compiled catalog.
func (n *Node) Gate(in wire.Gate) wire.Gated {
	n.Fleet.t.Helper()
	var out wire.Gated
	n.must(n.Fleet.t, wire.OpGate, in, &out)
	return out
}

// Ask asks one question for a run.
func (n *Node) Ask(run tutti.RunID, q tutti.Query) wire.Answer {
	n.Fleet.t.Helper()
	var out wire.Answer
	n.must(n.Fleet.t, wire.OpAsk, wire.Question{Run: run, Query: q, Opens: true}, &out)
	return out
}

// Read asks a question and returns it in the form of a record.
func (n *Node) Read(run tutti.RunID, q tutti.Query) tutti.Read {
	n.Fleet.t.Helper()
	a := n.Ask(run, q)
	return tutti.Read{Query: q, Found: a.Found, Digest: a.Digest, Seq: a.Seq}
}

// Publish sets a value for a run.
func (n *Node) Publish(run tutti.RunID, key, value string) error {
	return n.Call(wire.OpPublish, wire.Publish{Run: run, Key: key, Value: json.RawMessage(value)}, nil)
}

// Hello exchanges the ticket, like an agent after it has connected.
func (n *Node) Hello(next, boot string) error {
	err := n.Call(wire.OpHello, wire.Hello{Ticket: n.Ticket, Next: next, Boot: boot, Host: string(n.Name), Machine: n.Machine}, nil)
	if err == nil {
		n.Ticket = next
	}
	return err
}

// Finish sends a successful result.
func (n *Node) Finish(run tutti.RunID) {
	n.Fleet.t.Helper()
	n.must(n.Fleet.t, wire.OpResult, Result(run, tutti.Changed), nil)
}

// Forget turns the agent into an agent of an earlier release, without these capabilities.
func (n *Node) Forget(version string, names ...tutti.Capability) {
	n.Agent = wire.Claim{Version: version, Knows: slices.DeleteFunc(tutti.Capabilities(), func(c tutti.Capability) bool { return slices.Contains(names, c) })}
}

// Pass claims a run, passes its gate and ends it successfully.
func (n *Node) Pass() tutti.Order {
	n.Fleet.t.Helper()
	o := n.MustClaim()
	n.Gate(wire.Gate{Run: o.Run})
	n.Finish(o.Run)
	return o
}

// Result returns the result of a run that began at the start time of synctest and lasted one
// second. A failed result has the reason resources.
func Result(run tutti.RunID, outcome tutti.Outcome) tutti.Result {
	start := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	r := tutti.Result{Run: run, Outcome: outcome, StartedAt: start, EndedAt: start.Add(time.Second)}
	if outcome == tutti.Failed {
		r.Reason = tutti.BecauseResources
	}
	return r
}
