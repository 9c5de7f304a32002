package past

import (
	"context"
	"encoding/json"
	"errors"
	"iter"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/memory"
)

func valueSet(seq uint64) tutti.Event {
	return tutti.Event{Seq: seq, At: time.Unix(0, 0), By: "operator:ada", Body: &tutti.ValueSet{Key: "shared/x", Value: json.RawMessage("1")}}
}

// readLog is a log that calls a hook before each read.
type readLog struct {
	*memory.Log
	before func(after uint64) error
}

func (l *readLog) Read(ctx context.Context, after uint64) iter.Seq2[tutti.Event, error] {
	if err := l.before(after); err != nil {
		return func(yield func(tutti.Event, error) bool) { yield(tutti.Event{}, err) }
	}
	return l.Log.Read(ctx, after)
}

// TestANewFoldIsOfTheWholeLog checks a refold during which a snapshot drops events. A
// dropped event may have withdrawn a value that an earlier event had set. So the refold
// must begin again. If the log returns an error, the refold also reads the log again.
func TestANewFoldIsOfTheWholeLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &readLog{Log: memory.NewLog()}
		if _, err := log.Append(t.Context(), 0, []tutti.Event{valueSet(1)}); err != nil {
			t.Fatal(err)
		}
		s := New(Options{Log: log, Blobs: memory.NewBlobs(), Logger: slog.New(slog.DiscardHandler)})
		begins := 0
		log.before = func(after uint64) error {
			if after > 0 {
				return nil
			}
			switch begins++; begins {
			case 1:
				return errors.New("the disk does not answer")
			case 2:
				s.taken.Store(&tutti.SnapshotTaken{})
			}
			return nil
		}
		began := time.Now()
		state := s.Refold(t.Context())
		if _, found := state.Data.Value("shared/x"); !found || state.Seq != 1 {
			t.Errorf("a fold up to %d of 1, with the value: %v", state.Seq, found)
		}
		if begins != 3 || time.Since(began) != refoldEvery {
			t.Errorf("the log was read %d times within %s, want 3 times and one rest of %s", begins, time.Since(began), refoldEvery)
		}
	})
}
