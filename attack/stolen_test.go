package attack

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

// TestStolenCredentials plays an attacker who has copied a node's identity. The attacker connects
// from elsewhere at the same time as the node. For the fleet the attacker is that node and no other
// node. The server must notice that there are two machines. Removing the node must lock out both
// machines.
func TestStolenCredentials(t *testing.T) {
	f := start(t)
	real := f.join("taken")
	copied := f.path("copied")
	if err := os.CopyFS(copied, os.DirFS(real.dir)); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"node.nk", "node.x25519", "membership.json"} {
		if err := os.Chmod(copied+"/"+name, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	thief := f.node(copied)
	nc, err := thief.raw(t, "127.0.0.2")
	if err != nil {
		t.Fatal(err)
	}
	victim := f.honest[0]
	ctx := t.Context()

	t.Run("can", func(t *testing.T) {
		job, err := f.admin.StartJob(ctx, api.StartJob{Plan: "taken", Mode: tutti.ModeApply})
		if err != nil {
			t.Fatal(err)
		}
		// The attacker gets the same answers as the node, and may answer in place of the node. The attacker and the
		// node claim the same run, and the run ends only once.
		var his, its wire.Claimed
		f.eventually(func() error {
			if err := thief.call(ctx, wire.OpClaim, wire.Claim{}, &his); err != nil || his.Order == nil {
				return tutti.Errorf(tutti.CodeInternal, "no order: %v", err)
			}
			return nil
		})
		if err := real.call(ctx, wire.OpClaim, wire.Claim{}, &its); err != nil || its.Order == nil || its.Order.Run != his.Order.Run {
			t.Fatalf("the node's claim after the thief's: %+v, %v", its.Order, err)
		}
		if his.Order.Node != "taken" {
			t.Errorf("the thief got the order of %s", his.Order.Node)
		}
		for _, n := range []*node{thief, real} {
			if err := n.call(ctx, wire.OpResult, result(his.Order.Run), nil); err != nil {
				t.Errorf("result: %v", err)
			}
		}
		if got := f.count(func(b tutti.Body) bool {
			r, ok := b.(*tutti.RunFinished)
			return ok && r.Result.Run == his.Order.Run
		}); got != 1 {
			t.Errorf("the run of %s ended %d times", job, got)
		}
	})
	t.Run("cannot", func(t *testing.T) {
		for _, subject := range []string{
			"n." + string(victim.Key) + ".claim", "d." + string(victim.Key) + ".claim", "d." + string(thief.Key) + ".claim",
			"$JS.API.STREAM.DELETE.TUTTI_LOG", "$SYS.REQ.CLAIMS.UPDATE", "log.run.wanted.x",
		} {
			if err := nc.Publish(subject, []byte("{}")); err != nil {
				t.Fatal(err)
			}
		}
		for _, subject := range []string{">", "d." + string(victim.Key) + ".>", "i." + string(victim.Key) + ".>"} {
			if _, err := nc.SubscribeSync(subject); err != nil {
				t.Fatal(err)
			}
		}
		_ = nc.Flush()
		f.audited(denial{"node:taken", "publish to n." + string(victim.Key) + ".claim", ""})
		f.audited(denial{"node:taken", "publish to d." + string(victim.Key) + ".claim", ""})
		f.audited(denial{"node:taken", "publish to $JS.API.STREAM.DELETE.TUTTI_LOG", ""})
		f.audited(denial{"node:taken", "publish to log.run.wanted.x", ""})
		f.audited(denial{"node:taken", "listen to d." + string(victim.Key) + ".>", ""})
	})
	f.works("during")
	f.audited(denial{"node:taken", "be connected from 127.0.0.1 and 127.0.0.2 at once", ""})

	if err := f.admin.RemoveNode(ctx, "taken"); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() error {
		if nc.IsClosed() {
			return nil
		}
		return tutti.Errorf(tutti.CodeInternal, "the thief is still connected")
	})
	if _, err := thief.raw(t, "127.0.0.2"); err == nil {
		t.Error("the thief of a node that was removed connects again")
	}
	f.audited(denial{"address:127.0.0.2", "connect to the bus as " + string(thief.Key), ""})
	f.works("after")
}

// The method `count` returns the number of events in the log for which the argument `such` returns
// true.
func (f *fleet) count(such func(tutti.Body) bool) int {
	n := 0
	for _, e := range f.events() {
		if such(e.Body) {
			n++
		}
	}
	return n
}

// TestManyConnections checks that one key can have only a few connections. One more connection
// closes the oldest. If a connection uses the name of another node, it gets no rights of that node.
func TestManyConnections(t *testing.T) {
	f := start(t)
	taken := f.join("taken")
	posing := func(o *nats.Options) error { o.User, o.Nkey = string(f.honest[0].Key), ""; return nil }
	var open []*nats.Conn
	for range 20 {
		nc, err := taken.raw(t, "127.0.0.1", posing)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, nc)
	}
	f.eventually(func() error {
		left := 0
		for _, nc := range open {
			if nc.IsConnected() {
				left++
			}
		}
		if left > 3 {
			return tutti.Errorf(tutti.CodeInternal, "%d connections of one node are open", left)
		}
		return nil
	})
	if !open[len(open)-1].IsConnected() {
		t.Error("the youngest connection was ended")
	}
	f.works("during")
	f.audited(denial{"node:taken", "open more than 3 connections at once", ""})
	for _, e := range f.events() {
		if d, ok := e.Body.(*tutti.Denied); ok && strings.Contains(d.Who, "node-01") {
			t.Errorf("%+v: that was somebody else", *d)
		}
	}
	f.works("after")
}

// TestReplay records the messages of a node and sends them again: later, in another order, and from
// another node.
func TestReplay(t *testing.T) {
	f := start(t)
	taken := f.join("taken")
	type message struct {
		op      string
		payload []byte
	}
	var sent []message
	say := func(op string, in, out any) {
		t.Helper()
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		reply, err := taken.conn.Call(t.Context(), op, raw)
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		sent = append(sent, message{op, raw})
		if out != nil {
			if err := json.Unmarshal(reply, out); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := f.admin.StartJob(t.Context(), api.StartJob{Plan: "taken", Mode: tutti.ModeApply}); err != nil {
		t.Fatal(err)
	}
	var claimed wire.Claimed
	f.eventually(func() error {
		sent = nil
		say(wire.OpClaim, wire.Claim{}, &claimed)
		if claimed.Order == nil {
			return tutti.Errorf(tutti.CodeInternal, "nothing to claim")
		}
		return nil
	})
	run := claimed.Order.Run
	say(wire.OpGate, wire.Gate{Run: run, CatalogReport: tutti.CatalogReport{Values: []string{"node/taken/x"}}}, nil)
	say(wire.OpPublish, wire.Publish{Run: run, Key: "node/taken/x", Value: json.RawMessage("1")}, nil)
	say(wire.OpPublish, wire.Publish{Run: run, Key: "node/taken/x", Value: json.RawMessage("2")}, nil)
	say(wire.OpResult, result(run), nil)
	before := f.events()

	// The node itself sends the messages in the reverse order, and nothing may happen again.
	for i := len(sent) - 1; i >= 0; i-- {
		_, err := taken.conn.Call(t.Context(), sent[i].op, sent[i].payload)
		if op := sent[i].op; op == wire.OpPublish {
			wantCode(t, "a value of a run that has ended", err, tutti.CodeConflict)
		}
	}
	// Another node sends the messages, and the server must refuse every message.
	other := f.honest[0]
	for _, m := range sent[1:] {
		_, err := other.conn.Call(t.Context(), m.op, m.payload)
		wantCode(t, m.op+" of another node's run", err, tutti.CodeRefused)
	}
	// Another connection sends the same bytes on the bus, and the bus must refuse the subject.
	nc, err := other.raw(t, "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range sent {
		if err := nc.PublishRequest("n."+string(taken.Key)+"."+m.op, "i."+string(taken.Key)+".x", m.payload); err != nil {
			t.Fatal(err)
		}
	}
	_ = nc.Flush()
	f.audited(denial{"node:node-01", "speak for run " + string(run), "is not a run of node node-01"})
	f.audited(denial{"node:node-01", "publish to n." + string(taken.Key) + ".result", ""})
	for _, e := range f.events()[len(before):] {
		if _, ok := e.Body.(*tutti.Denied); !ok {
			t.Errorf("a replay had an effect: %s %s by %s", e.Body.Kind(), e.Body.ID(), e.By)
		}
	}
	values, err := f.admin.ListValues(t.Context(), "node/taken")
	if err != nil || len(values) != 1 || string(values[0].Value) != "2" {
		t.Errorf("values %+v, %v: want the last one", values, err)
	}
	f.works("after")
}

// TestManInTheMiddle plays an attacker between client and server, who has his own CA. No node,
// joining machine or operator may trust the attacker.
func TestManInTheMiddle(t *testing.T) {
	f := start(t)
	m := f.between(t)
	token, err := f.admin.CreateToken(t.Context(), api.CreateToken{Name: "taken"})
	if err != nil {
		t.Fatal(err)
	}
	out, err := f.tryJoin(m.redirect(t, token.Text))
	if err == nil || !strings.Contains(out, "the server belongs to another fleet, or an attacker intercepts") {
		t.Errorf("join: %v: %s", err, out)
	}
	out, err = f.try(f.path("operator"), "--server", "https://"+m.addr, "job", "list")
	if err == nil || !strings.Contains(out, "is not the server that this operator knows") {
		t.Errorf("operator: %v: %s", err, out)
	}
	taken := f.join("taken-2")
	taken.membership.Bus = m.addr
	if nc, err := taken.raw(t, "127.0.0.1", nats.Timeout(5*time.Second)); err == nil {
		t.Errorf("a node is connected to %s", nc.ConnectedUrl())
	}
	if read := m.read(); len(read) > 0 {
		t.Errorf("the man in the middle read %q", read)
	}
	if m.tried() < 3 {
		t.Errorf("only %d came by the man in the middle: this test sees nothing", m.tried())
	}
	f.works("after")
}
