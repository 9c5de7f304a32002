package server_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The type `mistaken` is a blob store that reports a large size for one blob, and panics when somebody reads this
// blob.
type mistaken struct {
	*memory.Blobs
	of tutti.Digest
}

func (b *mistaken) Size(ctx context.Context, digest tutti.Digest) (int64, error) {
	if digest == b.of {
		return 10 << 20, nil
	}
	return b.Blobs.Size(ctx, digest)
}

func (b *mistaken) Get(ctx context.Context, digest tutti.Digest) ([]byte, error) {
	if digest == b.of {
		panic("a mistake")
	}
	return b.Blobs.Get(ctx, digest)
}

// TestAPanicKeepsNoRoom checks that a panic in a call fails this call and frees the room of the call. If such a call
// kept its room, a few calls would use up the room for content that the server reads.
func TestAPanicKeepsNoRoom(t *testing.T) {
	for name, panics := range map[string]func(t *testing.T, f compileFixture, blobs *mistaken, order *tutti.Order) (op string, in any){
		"the manifest of code": func(_ *testing.T, f compileFixture, blobs *mistaken, order *tutti.Order) (string, any) {
			for _, e := range f.Events() {
				if b, is := e.Body.(*tutti.CodePushed); is {
					blobs.of = b.Signed
				}
			}
			return wire.OpCode, wire.CodeGet{Run: order.Run, Code: order.Code}
		},
		"a file of code": func(_ *testing.T, _ compileFixture, blobs *mistaken, order *tutti.Order) (string, any) {
			digest := tutti.DigestOf([]byte("large"))
			blobs.of = digest
			return wire.OpBlobGet, wire.BlobGet{Run: order.Run, Digest: digest}
		},
		"exports of a Puppet Server": func(t *testing.T, f compileFixture, blobs *mistaken, order *tutti.Order) (string, any) {
			f.compiled(t, wire.ServedCatalog{For: "db-01", Gate: wire.Gate{Run: order.Run, Exports: []tutti.Export{database("a")}}})
			for _, e := range f.Events() {
				if b, is := e.Body.(*tutti.RunAsked); is {
					blobs.of = b.Served.Set
				}
			}
			return wire.OpGate, wire.Gate{Run: order.Run}
		},
		"a record": func(t *testing.T, f compileFixture, blobs *mistaken, order *tutti.Order) (string, any) {
			record := []byte(`{"reads":[],"keys":[{"key":"a"}]}`)
			if _, err := f.Handle(t.Context(), f.db.Key, wire.OpBlobPut, record); err != nil {
				t.Fatal(err)
			}
			blobs.of = tutti.DigestOf(record)
			result := servertest.Result(order.Run, tutti.Changed)
			result.Record = blobs.of
			return wire.OpResult, result
		},
	} {
		t.Run(name, func(t *testing.T) {
			blobs := &mistaken{Blobs: memory.NewBlobs()}
			f := servertest.Start(t, func(o *server.Options) { o.Blobs = blobs })
			fleet := compileFixture{f, f.Join("puppet"), f.Join("db-01"), f.Join("web-01")}
			f.Push(compileFleet + "environment: {name: production, path: ./code}\n")
			if name == "a file of code" {
				largeFile(t, f)
			}
			plan := "own" // the plan `own` uses the code that was pushed
			if name == "exports of a Puppet Server" {
				plan = "deploy"
			}
			f.Start(tutti.PlanName(plan), tutti.ModeApply)
			order := fleet.db.MustClaim()
			room := f.RoomToRead()
			op, in := panics(t, fleet, blobs, &order)
			for range 3 { // if the first call kept its room, the second call would wait without end
				ctx, turn := tutti.WithTurn(t.Context(), func() {})
				func() { // the bus ends a call in the same way
					defer turn.End()
					defer func() {
						if p := recover(); fmt.Sprint(p) != "a mistake" {
							t.Errorf("the call ended with %v, want a panic", p)
						}
					}()
					if err := fleet.db.CallWithin(ctx, op, in, nil); err != nil {
						t.Error(err)
					}
				}()
				if got := f.RoomToRead(); got != room {
					t.Fatalf("%d bytes of room are not free again", room-got)
				}
			}
		})
	}
}
