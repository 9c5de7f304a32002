package server_test

import (
	"context"
	"iter"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
)

// tornLog begins with half an append, which a loss of power can leave. No reader returns
// this half (natsbus, TestTornBatchIsNotRead).
type tornLog struct{ *memory.Log }

const torn = 2

func (tornLog) Torn() uint64 { return torn }

func (l tornLog) Append(ctx context.Context, last uint64, events []tutti.Event) (uint64, error) {
	seq, err := l.Log.Append(ctx, max(last, torn)-torn, events)
	for i := range events {
		events[i].Seq += torn
	}
	return seq + torn, err
}

func (l tornLog) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	return func(yield func(tutti.Event, error) bool) {
		for e, err := range l.Log.Read(ctx, max(after, torn)-torn) {
			e.Seq += torn
			if !yield(e, err) {
				return
			}
		}
	}
}

func (l tornLog) LinkAt(ctx context.Context, seq uint64) (tutti.Digest, error) {
	return l.Log.LinkAt(ctx, max(seq, torn)-torn) // 0 is not the number of an event
}

func TestAServerWritesBehindATornAppend(t *testing.T) {
	f := servertest.Start(t, func(o *server.Options) { o.Log = tornLog{memory.NewLog()} })
	for _, key := range []string{"shared/a", "shared/b"} {
		if err := f.SetValue(servertest.Operator(), key, []byte("1")); err != nil {
			t.Fatalf("set %s: %v", key, err)
		}
	}
	values, err := f.ListValues(servertest.Operator(), "")
	if err != nil || len(values) != 2 || values[0].Seq != torn+2 || values[1].Seq != torn+3 {
		t.Errorf("values %+v, %v; want two, with the sequences of the log behind that of its epoch: 4 and 5", values, err)
	}
}

// TestAnEventThatNobodyCanHaveSeen checks a node that reports an event from the torn part. The node can only have
// seen this event on another copy of the log, before this log was set back.
func TestAnEventThatNobodyCanHaveSeen(t *testing.T) {
	f := servertest.Start(t, func(o *server.Options) { o.Log = tornLog{memory.NewLog()} })
	seen := tutti.Position{Epoch: f.Position().Epoch, Seq: torn, Link: tutti.DigestOf([]byte("whole"))}
	wantCode(t, f.Behind(t.Context(), seen), tutti.CodeDamaged, "its log has gone back")
}
