package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// An answer must not be much larger than its content: in a text of `<`, each character stays one byte.
func TestAnAnswerIsNotEscapedForHTML(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	e := database("x")
	e.Parameters["x"] = json.RawMessage(`"` + strings.Repeat("<&>", 1000) + `"`)
	f.db.Gate(wire.Gate{Run: order.Run, Exports: []tutti.Export{e}})
	f.db.Finish(order.Run)
	web := f.web1.MustClaim()
	in, err := json.Marshal(wire.Question{Run: web.Run, Query: collects})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := f.Handle(t.Context(), f.web1.Key, wire.OpAsk, in)
	var out wire.Answer
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil || len(raw) > 4000 || len(out.Exports) != 1 || string(out.Exports[0].Parameters["x"]) != string(e.Parameters["x"]) || raw[len(raw)-1] != '}' {
		t.Errorf("%d bytes: %.200s, %v", len(raw), raw, err)
	}
}

// mib returns this many exports of almost one MiB each.
func mib(count int) []tutti.Export {
	text := json.RawMessage(`"` + strings.Repeat("x", 1<<20-100) + `"`)
	var out []tutti.Export
	for i := range count {
		e := database(fmt.Sprint(i))
		e.Parameters["x"] = text
		out = append(out, e)
	}
	return out
}

// TestLargeAnswersArePaidFor checks whose limit counts a large answer. A short question may ask for all exports of
// other nodes. If a node asks for itself, the answer counts as if the node had sent it. After that the node must
// wait before it may ask again. Other nodes need not wait. A Puppet Server asks on behalf of all nodes for which it
// compiles, so for a Puppet Server answers do not count.
func TestLargeAnswersArePaidFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		f.Push(strings.Replace(twoSteps, "grants:", "grants:\n  - {to: web, compile: true, dangerous: true}", 1))
		exports := mib(7)
		f.db.Gate(wire.Gate{Run: order.Run, Exports: exports})
		f.db.Finish(order.Run)
		run1, run2 := f.web1.MustClaim().Run, f.web2.MustClaim().Run
		ask := func(n *servertest.Node, run tutti.RunID) error {
			return n.Call(wire.OpAsk, wire.Question{Run: run, Query: collects}, nil)
		}
		answered := 0
		var refused error
		for ; refused == nil && answered < 30; answered++ {
			refused = ask(f.web1, run1)
		}
		wantCode(t, refused, tutti.CodeUnavailable, "ask again in")
		if answered--; answered < 5 || answered > 12 {
			t.Errorf("%d answers of 7 MiB at once, want about 10", answered)
		}
		if err := ask(f.web2, run2); err != nil {
			t.Errorf("another node: %v", err)
		}
		time.Sleep(10 * time.Second)
		if err := ask(f.web1, run1); err != nil {
			t.Errorf("after ten seconds: %v", err)
		}
		for range 14 {
			if err := f.web2.Call(wire.OpAsk, wire.Question{For: "web-01", Query: collects}, nil); err != nil {
				t.Fatalf("a Puppet Server: %v", err)
			}
		}

		for i := range 4 {
			set(t, f.Fleet, fmt.Sprint("shared/hiera/large", i), `"`+strings.Repeat("x", 60_000)+`"`)
		}
		hiera := func() error { return f.web1.Call(wire.OpHiera, wire.HieraQuestion{Run: run1}, nil) }
		f.SpendAllBut(f.web1.Key, 20_000)
		if err := hiera(); err != nil {
			t.Errorf("who can pay for the work, and not for the bytes: %v", err)
		}
		wantCode(t, hiera(), tutti.CodeUnavailable, "ask again in")
		time.Sleep(time.Second)
		if err := hiera(); err != nil {
			t.Errorf("hiera after a second: %v", err)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestLargeAnswersHaveRoom checks the limit for the memory of answers that are not sent yet. This limit also covers
// the content that the server reads for nodes. Each node can have one answer at a time. A Puppet Server can have
// one answer for each node for which it compiles.
func TestLargeAnswersHaveRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, _, order := started(t, tutti.ModeApply)
		f.Push(strings.Replace(twoSteps, "grants:", "grants:\n  - {to: web, compile: true, dangerous: true}", 1))
		f.db.Gate(wire.Gate{Run: order.Run, Exports: mib(3)})
		f.db.Finish(order.Run)
		run := f.web1.MustClaim().Run
		all := f.RoomToRead()
		answers := make(chan *tutti.Turn, 8)
		ask := func(n *servertest.Node, in wire.Question) {
			in.Query = collects
			ctx, turn := tutti.WithTurn(t.Context(), func() {})
			go func() {
				if err := n.CallWithin(ctx, wire.OpAsk, in, nil); err != nil {
					t.Error(err)
				}
				answers <- turn
			}()
			synctest.Wait()
		}
		const size = 3 * (1<<20 - 100)
		want := func(when string, answered int) {
			t.Helper()
			used := all - f.RoomToRead()
			if len(answers) != answered || used < int64(answered)*2*size || used > int64(answered)*3*size {
				t.Errorf("%s: %d answers are in memory, and %d bytes of room used; want %d answers", when, len(answers), used, answered)
			}
		}
		ask(f.web1, wire.Question{Run: run})
		want("one", 1)
		ask(f.web1, wire.Question{Run: run})
		want("a second one of the same node", 1)
		ask(f.web2, wire.Question{For: "web-01"})
		ask(f.web2, wire.Question{For: "web-02"})
		want("two of a Puppet Server", 3)
		for range 3 {
			(<-answers).End()
		}
		synctest.Wait()
		want("when these are sent", 1)
		(<-answers).End()
		want("at the end", 0)
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}
