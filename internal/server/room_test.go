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
	"github.com/tutti-project/tutti/internal/server/nodes"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The type `leaving` is a blob store that stores content but returns an error. So the server does not know that the
// content is stored. The effect is the same as when a node disconnects before it gets the answer.
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

// The content that a node sends counts as soon as the server stores it, even if the log does not name it yet.
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
			in := wire.Gate{Run: run}
			for k := range 4 {
				in.Exports = append(in.Exports, tutti.Export{Type: "Database", Title: fmt.Sprint(i, k), Parameters: map[string]json.RawMessage{
					"x": json.RawMessage(`"` + strings.Repeat("x", 1_000_000) + `"`),
				}})
			}
			return db.Call(wire.OpGate, in, nil)
		}
		result := func(i int) error {
			part := []byte(fmt.Sprint(i) + strings.Repeat("x", 115<<10))
			in := wire.Ended{Result: servertest.Result(run, tutti.Changed), Enclosed: [][]byte{part}}
			in.Log = tutti.DigestOf(part)
			raw, err := in.Encode()
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.Handle(t.Context(), db.Key, wire.OpResult, raw)
			return err
		}
		blob := func(i int) error {
			_, err := f.Handle(t.Context(), db.Key, wire.OpBlobPut, []byte(fmt.Sprint(i)+strings.Repeat("x", 1<<20)))
			return err
		}
		// The function `until` first sets how many more bytes the node may store. Then the node
		// sends messages until the server refuses one.
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
		until(blob, nodes.MaxStored, 4<<20)
		until(gate, nodes.MaxStored, 9<<20)
		until(result, nodes.MaxEnded, 1<<20)
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// The server stores the report of a foreign run before it stores the run. A node without any run of
// Tutti may also report a foreign run.
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
		wantCode(t, told(12), tutti.CodeUnavailable, "too many reports within a minute")
		time.Sleep(2 * time.Minute)
		blobs.on.Store(false)
		wantCode(t, told(13), "", "")
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestForeignRunsDoNotFillLogOrDisk checks the limit for a node that has no run of Tutti and reports foreign runs
// within an hour. The node reports the refused runs again later, and the server then accepts all of them.
func TestForeignRunsDoNotFillLogOrDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := servertest.Start(t)
		db, web := f.Join("db-01"), f.Join("web-01")
		setFleet(t, f, agentFleet)
		told := func(n *servertest.Node, i int) error {
			time.Sleep(time.Minute)
			run, report := foreign(i, tutti.Changed)
			return tell(t, n, run, report)
		}
		wantCode(t, told(db, 1), "", "")
		f.HasTold("db-01", server.MaxTold-100, 0)
		taken := func() int {
			return strings.Count(strings.Join(servertest.Kinds(f.Events()), " "), "run.foreign")
		}
		wantCode(t, told(db, 2), tutti.CodeUnavailable, "too much about foreign runs within an hour, 1024 KiB at most")
		f.HasTold("web-01", 0, server.MaxReports-10)
		wantCode(t, told(web, 3), tutti.CodeUnavailable, "too many reports of foreign runs within an hour, 64 MiB at most")
		if n := taken(); n != 1 {
			t.Errorf("%d foreign runs were taken, want 1", n)
		}
		time.Sleep(time.Hour)
		wantCode(t, told(db, 2), "", "")
		wantCode(t, told(web, 3), "", "")
		if n := taken(); n != 3 {
			t.Errorf("%d foreign runs were taken, want 3", n)
		}
		if err := f.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// TestWhatAForeignRunSaysIsBoundedInTheLog checks that the size of a foreign run in the log is limited, also in
// fields that nobody sees.
func TestWhatAForeignRunSaysIsBoundedInTheLog(t *testing.T) {
	f := servertest.Start(t)
	db := f.Join("db-01")
	setFleet(t, f, agentFleet)
	bad := strings.Repeat("\x7f", 4096)
	run, _ := foreign(1, tutti.Failed, func(in *tutti.Foreign) {
		in.Local, in.Environment = &tutti.Local{}, bad
		in.Result.Report = ""
		in.Result.Message, in.Result.Phase, in.Result.Cold = bad, bad, strings.Repeat("x\x7f", 200_000)
		in.Result.Failures, in.Result.Changes = nil, nil
		for range tutti.MaxFailures {
			in.Result.Failures = append(in.Result.Failures, tutti.Failure{Resource: bad, File: bad, Message: bad})
			in.Result.Changes = append(in.Result.Changes, tutti.Change{Resource: bad, File: bad, Message: bad})
		}
	})
	mustTell(t, db, run, nil)
	all := f.Events()
	raw, err := json.Marshal(all[len(all)-1])
	if _, is := all[len(all)-1].Body.(*tutti.RunForeign); err != nil || !is || len(raw) > 80<<10 {
		t.Errorf("%s of %d bytes, %v", all[len(all)-1].Body.Kind(), len(raw), err)
	}
}
