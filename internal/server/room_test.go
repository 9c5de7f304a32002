package server_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// leaving is a store of whose content the server does not hear: as when a node does not wait for its answer, and what
// it handed over stays behind.
type leaving struct {
	tutti.Blobs
	left atomic.Int64 // bytes
	on   atomic.Bool
}

func (b *leaving) Put(ctx context.Context, content []byte) (tutti.Digest, error) {
	if !b.on.Load() {
		return b.Blobs.Put(ctx, content)
	}
	b.left.Add(int64(len(content)))
	return "", tutti.Errorf(tutti.CodeDeadline, "nobody waits")
}

// What a node hands over counts when it is kept, not when the log has it.
func TestWhatANodeLeavesBehindIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blobs := &leaving{Blobs: memory.NewBlobs()}
		f := servertest.Start(t, func(o *server.Options) { o.Blobs = blobs })
		db := f.Join("db-01")
		f.Join("web-01")
		f.Join("web-02")
		f.Push(twoSteps)
		f.Start("deploy", tutti.ModeApply)
		run := db.MustClaim().Run
		blobs.on.Store(true)
		gate := func(i int) error {
			in := tutti.Gate{Run: run}
			for k := range 4 {
				in.Exports = append(in.Exports, tutti.Export{Type: "Database", Title: fmt.Sprint(i, k), Parameters: map[string]json.RawMessage{
					"x": json.RawMessage(`"` + strings.Repeat("x", 1_000_000) + `"`),
				}})
			}
			return db.Call(tutti.OpGate, in, nil)
		}
		result := func(i int) error {
			part := []byte(fmt.Sprint(i) + strings.Repeat("x", 115<<10))
			in := tutti.Ended{Result: servertest.Result(run, tutti.Changed), Enclosed: [][]byte{part}}
			in.Log = tutti.DigestOf(part)
			raw, err := in.Encode()
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Handle(t.Context(), db.Key, tutti.OpResult, raw)
			return err
		}
		blob := func(i int) error {
			_, err := f.Handle(t.Context(), db.Key, tutti.OpBlobPut, []byte(fmt.Sprint(i)+strings.Repeat("x", 1<<20)))
			return err
		}
		// until says something until it is refused, of a node that may leave so much more behind.
		until := func(say func(i int) error, most, more int64) {
			t.Helper()
			f.HasLeft(db.Key, most-more)
			before := blobs.left.Load()
			var err error
			for i := 0; i < 20 && tutti.CodeOf(err) != tutti.CodeRefused; i++ {
				err = say(i)
				time.Sleep(10 * time.Second)
			}
			wantCode(t, err, tutti.CodeRefused, "since its last result")
			if left := blobs.left.Load() - before; left > more || left < more/2 {
				t.Errorf("%d bytes are left behind, at most %d", left, more)
			}
		}
		until(blob, server.MaxStored, 4<<20)
		until(gate, server.MaxStored, 9<<20)
		until(result, server.MaxEnded, 1<<20)
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// The report of a foreign run is kept before the run is, of which a node without any may tell.
func TestReportsOfForeignRunsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		blobs := &leaving{Blobs: memory.NewBlobs()}
		f := servertest.Start(t, func(o *server.Options) { o.Blobs = blobs })
		db := f.Join("db-01")
		setFleet(t, f, agentFleet)
		told := func(i int) error {
			run, report := foreign(i, tutti.Changed)
			return tell(t, db, run, report)
		}
		blobs.on.Store(true)
		for i := range 12 {
			wantCode(t, told(i), tutti.CodeDeadline, "nobody waits")
		}
		wantCode(t, told(12), tutti.CodeUnavailable, "so many reports within a minute")
		time.Sleep(2 * time.Minute)
		blobs.on.Store(false)
		wantCode(t, told(13), "", "")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}
