package server_test

import (
	"context"
	"fmt"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// lookedUpLog records the calls for single events. A test can make these calls wait.
type lookedUpLog struct {
	*memory.Log
	reads, lookups, most atomic.Int64
	hold                 chan struct{} // if the channel is nil, no call waits
}

func (l *lookedUpLog) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	l.reads.Add(1)
	return l.Log.Read(ctx, after)
}

func (l *lookedUpLog) LinkAt(ctx context.Context, seq uint64) (tutti.Digest, error) {
	now := l.lookups.Add(1)
	defer l.lookups.Add(-1)
	for most := l.most.Load(); now > most && !l.most.CompareAndSwap(most, now); {
		most = l.most.Load()
	}
	if l.hold != nil {
		<-l.hold
	}
	return l.Log.LinkAt(ctx, seq)
}

// TestOneEventOfLongAgoIsLookedUp checks a caller that names an event which is no longer in memory. The server reads
// only that one event from the log. The server reads old events for at most two callers at the same time.
func TestOneEventOfLongAgoIsLookedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &lookedUpLog{Log: memory.NewLog()}
		old := make([]tutti.Event, 9000)
		for i := range old {
			old[i] = tutti.Event{By: "operator:ada", Body: &tutti.ValueSet{Key: fmt.Sprint("shared/", i%10), Value: []byte("1")}}
		}
		if _, err := log.Append(t.Context(), 0, old); err != nil {
			t.Fatal(err)
		}
		f := servertest.Resume(t, log.Log, memory.NewBlobs(), func(o *server.Options) { o.Log = log })
		db := f.Join("db-01")
		seen := tutti.Position{Epoch: f.Position().Epoch, Seq: 3, Link: old[2].Link}
		other := seen
		other.Link = old[3].Link
		reads := log.reads.Load()
		if err := db.Call(wire.OpClaim, wire.Claim{Seen: seen}, nil); err != nil {
			t.Errorf("who has seen the event: %v", err)
		}
		if err := db.Call(wire.OpClaim, wire.Claim{Seen: other}, nil); tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Errorf("who has seen another event there: %v, want CodeDamaged", err)
		}
		if log.most.Load() != 1 || log.reads.Load() != reads {
			t.Errorf("%d lookups at once and %d reads of the log, want one lookup and no read", log.most.Load(), log.reads.Load()-reads)
		}

		log.hold = make(chan struct{})
		const callers = 16
		done := make(chan error, callers)
		for range callers {
			go func() { done <- f.Behind(t.Context(), seen) }()
		}
		synctest.Wait()
		if now := log.lookups.Load(); now != 2 {
			t.Errorf("%d lookups at once, want 2", now)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.Behind(ctx, seen); tutti.CodeOf(err) != tutti.CodeDeadline {
			t.Errorf("who does not wait: %v, want CodeDeadline", err)
		}
		close(log.hold)
		for range callers {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}
