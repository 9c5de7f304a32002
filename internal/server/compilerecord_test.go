package server_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/server"
)

// exported hands over that a compile of db-01 exports a database.
func (f compileFixture) exported(run tutti.RunID, title string) error {
	return f.host.Call(tutti.OpCompiled, tutti.CompiledFor{For: "db-01", Gate: tutti.Gate{Run: run, Exports: []tutti.Export{database(title)}}}, nil)
}

// The record of a run is replaced by another one only, also after a restart, and not
// without end; none is kept that the disk has no room for.
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

// between is a store of blobs that calls once before it answers what a blob is.
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

// A gate is decided by the record that counts then: if the Puppet Server compiles
// anew while the gate is made of the last record, the node asks again.
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
	wantCode(t, f.db.Call(tutti.OpGate, tutti.Gate{Run: run}, nil), tutti.CodeUnavailable, "has compiled anew meanwhile")
	if err != nil {
		t.Fatal(err)
	}
	if got := f.db.Gate(tutti.Gate{Run: run}); got.Verdict != tutti.GateGo {
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

// What the node of a run without a record says that it exports is not kept: it has
// not compiled the catalog.
func TestANodeSaysNothingOfAPuppetServersExports(t *testing.T) {
	f, run := begun(t)
	forged := []tutti.Export{database("forged")}
	if got := f.db.Gate(tutti.Gate{Run: run, Exports: forged}); got.Verdict != tutti.GateGo {
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
