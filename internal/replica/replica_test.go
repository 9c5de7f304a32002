package replica

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
)

func valueSet(seq uint64) tutti.Event {
	return tutti.Event{Seq: seq, At: time.Unix(0, 0), By: "operator:ada", Body: &tutti.ValueSet{Key: "shared/x", Value: json.RawMessage("1")}}
}

// TestWhatIsTooFarBehindIsFoldedAnew checks the limit for events that wait for a reader.
// Above the limit the log is folded again.
func TestWhatIsTooFarBehindIsFoldedAnew(t *testing.T) {
	r := New()
	r.Begin(fold.New())
	v, err := r.Enter(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Hand(slices.Repeat([]tutti.Event{valueSet(1)}, maxPending))
	if len(r.pending) != maxPending || r.gap {
		t.Fatalf("%d events are pending, gap %v", len(r.pending), r.gap)
	}
	for seq := range uint64(2) {
		if r.Hand([]tutti.Event{valueSet(2 + seq)}); len(r.pending) != 0 || !r.gap {
			t.Fatalf("one more: %d events are pending, gap %v", len(r.pending), r.gap)
		}
	}
	if _, fits := r.next(t.Context()); fits {
		t.Fatal("what was left out is passed over")
	}
	if r.left != nil {
		t.Error("nobody has kept a version for long")
	}
	r.Hand([]tutti.Event{valueSet(4)})
	state := fold.New()
	state.Apply(valueSet(3))
	r.show(state)
	r.Leave(v)
	if events, fits := r.next(t.Context()); !fits || len(events) != 1 || events[0].Seq != 4 {
		t.Errorf("after a new fold at 3: %v, %v, want event 4", events, fits)
	}
}
