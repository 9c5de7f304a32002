package server_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The method `exported` tells the server that a compile of db-01 exports a database.
func (f compileFixture) exported(run tutti.RunID, title string) error {
	return f.host.Call(wire.OpCompiled, wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: run, Exports: []tutti.Export{database(title)}}}, nil)
}

// Only a different record replaces the record of a run, also after a restart. The number of
// replacements is limited. If the disk has no room for a record, the server does not store the
// record.
func TestTheRecordOfARunIsBounded(t *testing.T) {
	f, run := begun(t)
	records := func() int {
		n := 0
		for _, e := range f.Events() {
			if b, ok := e.Body.(*tutti.RunAsked); ok && b.Served != nil {
				n++
			}
		}
		return n
	}
	for i, title := range []string{"a", "a", "b", "b"} {
		if err := f.exported(run, title); err != nil {
			t.Fatal(err)
		}
		*f.Fleet = *f.Restart()
		if got, want := records(), i/2+1; got != want {
			t.Errorf("%d records after the compile %d, want %d", got, i+1, want)
		}
	}
	for i := records(); i < 10; i++ {
		if err := f.exported(run, fmt.Sprint(i)); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, f.exported(run, "more"), tutti.CodeRefused, "was compiled 10 times")
	d := &disk{}
	*f.Fleet = *f.Restart(d.options)
	d.full.Store(true)
	wantCode(t, f.exported(run, "more"), tutti.CodeUnavailable, "the disk is full")
	if got := records(); got != 10 {
		t.Errorf("%d records, want 10", got)
	}
}

// The type `between` is a blob store that calls a function once, before it returns the size of a blob.
type between struct {
	tutti.Blobs
	digest tutti.Digest
	call   func()
}

func (b *between) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if call := b.call; call != nil && digest == b.digest {
		b.call = nil
		call()
	}
	return b.Blobs.Get(ctx, digest)
}

// Size implements tutti.Sizing.
func (b *between) Size(ctx context.Context, digest tutti.Digest) (int64, error) {
	return b.Blobs.(tutti.Sizing).Size(ctx, digest)
}

// A gate is decided with the record that is current at that time. If the Puppet Server compiles again while
// the server prepares the gate from an older record, the node must ask again.
func TestAGateOfAnotherRecord(t *testing.T) {
	b := &between{}
	f, run := begun(t)
	*f.Fleet = *f.Restart(func(o *server.Options) { b.Blobs, o.Blobs = o.Blobs, b })
	if err := f.exported(run, "a"); err != nil {
		t.Fatal(err)
	}
	for _, e := range f.Events() {
		if body, ok := e.Body.(*tutti.RunAsked); ok {
			b.digest = body.Served.Set
		}
	}
	err := errors.New("not called")
	b.call = func() { err = f.exported(run, "b") }
	wantCode(t, f.db.Call(wire.OpGate, wire.Gate{Run: run}, nil), tutti.CodeUnavailable, "has compiled again meanwhile")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.db.Gate(wire.Gate{Run: run}); got.Verdict != tutti.GateGo {
		t.Fatalf("%+v, want go", got)
	}
	if diff := cmp.Diff([]tutti.Export{exportOf("b")}, f.exports()); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func exportOf(title string) tutti.Export {
	out := database(title)
	out.Node = "db-01"
	return out
}

// If a run has no record of the Puppet Server, the server ignores the exports that its node
// reports: the node has not compiled the catalog.
func TestANodeSaysNothingOfAPuppetServersExports(t *testing.T) {
	f, run := begun(t)
	forged := []tutti.Export{database("forged")}
	if got := f.db.Gate(wire.Gate{Run: run, Exports: forged}); got.Verdict != tutti.GateGo {
		t.Fatalf("%+v, want go", got)
	}
	for _, e := range f.Events() {
		if b, ok := e.Body.(*tutti.RunCompiled); ok && b.Set != "" {
			t.Errorf("exports were kept as %s", b.Set)
		}
	}
	if got := f.exports(); len(got) != 0 {
		t.Errorf("exports: %v", got)
	}
}

// People see the places in the code where a compile on a Puppet Server asked a question, as they do
// for a compile on the node. The node's own record does not have these places. People also see the
// places after a restart, together with the places of the node's own questions.
func TestWhereAPuppetServersCodeAsks(t *testing.T) {
	f, run := begun(t)
	set(t, f.Fleet, "db/password", `"p"`)
	value, key := tutti.Place{Resource: "Class[Db]", File: "db.pp", Line: 3}, tutti.Place{Resource: "Class[Db]", File: "db.pp", Line: 5}
	read := f.read(t, run, "db-01", tutti.Query{Kind: tutti.QueryValue, Key: "db/password"})
	read.At = value
	f.compiled(t, wire.ServedCatalog{For: "db-01", Gate: wire.Gate{
		Run: run, Reads: []tutti.Read{read}, Keys: []tutti.KeyRead{{Key: "db::port", At: key}},
	}})
	f.db.Gate(wire.Gate{Run: run})
	own := tutti.Record{Run: run, Keys: []tutti.KeyRead{{Key: "of::a::deferred"}}}
	raw, err := json.Marshal(own)
	if err != nil {
		t.Fatal(err)
	}
	ended := wire.Ended{Result: servertest.Result(run, tutti.Changed), Enclosed: [][]byte{raw}}
	ended.Record = tutti.DigestOf(raw)
	if err := handOver(t, f.db, ended, 0); err != nil {
		t.Fatal(err)
	}
	set(t, f.Fleet, "db/password", `"q"`)
	set(t, f.Fleet, "node/db-01/hiera/db::port", "1")
	*f.Fleet = *f.Restart()
	why, err := f.ExplainNode(servertest.Operator(), "db-01")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]tutti.Place{}
	for _, c := range why.Changed {
		got[c.Query.String()] = c.At
	}
	if diff := cmp.Diff(map[string]tutti.Place{"value \"db/password\"": value, "hiera \"db::port\"": key}, got); diff != "" {
		t.Errorf("changed: -want +got\n%s", diff)
	}
	shown, err := f.ShowNode(servertest.Operator(), "db-01")
	if err != nil {
		t.Fatal(err)
	}
	if len(shown.Reads) == 0 || shown.Reads[0].At != value || shown.Keys != 2 {
		t.Errorf("%d keys and %+v, want two keys, and a read at %+v", shown.Keys, shown.Reads, value)
	}
}
