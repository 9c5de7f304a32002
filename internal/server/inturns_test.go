package server

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/tutti-project/tutti"
)

// numbers yields so many numbers, and an error behind them. It is read by one at a time, or fails.
func numbers(t *testing.T, reading *atomic.Int64, count int, end error) iter.Seq2[int, error] {
	return func(yield func(int, error) bool) {
		for i := range count {
			if reading.Add(1) > 1 {
				t.Error("two read the past at once")
			}
			runtime.Gosched()
			reading.Add(-1)
			if !yield(i, nil) {
				return
			}
		}
		if end != nil {
			yield(0, end)
		}
	}
}

// TestThePastIsReadInTurns: all of it, in order; whoever passes it on holds up nobody.
func TestThePastIsReadInTurns(t *testing.T) {
	slots, broken := make(chan struct{}, 1), errors.New("broken")
	var reading atomic.Int64
	done := make(chan error, 8)
	for range cap(done) {
		go func() {
			want := 0
			for i, err := range inTurns(t.Context(), slots, numbers(t, &reading, 1000, broken)) {
				if err != nil {
					if want != 1000 {
						err = errors.New("not all of it came")
					}
					done <- err
					return
				}
				if i != want {
					done <- errors.New("not in order")
					return
				}
				want++
			}
			done <- errors.New("the error did not come")
		}()
	}
	for range cap(done) {
		if err := <-done; !errors.Is(err, broken) {
			t.Error(err)
		}
	}
	for i, err := range inTurns(t.Context(), slots, numbers(t, &reading, 1000, nil)) {
		if err != nil {
			t.Fatal(err)
		}
		if len(slots) != 0 {
			t.Fatal("a turn is held while something is passed on")
		}
		if i == 100 {
			break
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	slots <- struct{}{} // by somebody else
	cancel()
	for _, err := range inTurns(ctx, slots, numbers(t, &reading, 1, nil)) {
		if tutti.CodeOf(err) != tutti.CodeDeadline {
			t.Errorf("%v, want that it says what it waited for", err)
		}
	}
}
