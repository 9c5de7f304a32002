package past

import (
	"context"
	"errors"
	"iter"
	"runtime"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tutti-project/tutti"
)

// numbers yields this many numbers, and then an error. The function fails if two goroutines read at the same time.
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

// TestThePastIsReadInTurns checks that a reader gets all items in their order, and that a
// slow caller does not block other readers.
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
	slots <- struct{}{} // another reader has the slot
	cancel()
	for _, err := range inTurns(ctx, slots, numbers(t, &reading, 1, nil)) {
		if tutti.CodeOf(err) != tutti.CodeDeadline {
			t.Errorf("%v, want that it says what it waited for", err)
		}
	}
}

// TestTwoReadThePastOnAnyMachine checks that only two readers read at the same time, even with many
// processors. The other readers wait. If the wait is too long, they get an error.
func TestTwoReadThePastOnAnyMachine(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(64))
	synctest.Test(t, func(t *testing.T) {
		const callers = 6
		s := New(Options{})
		var reading atomic.Int64
		pass, done := make(chan struct{}), make(chan error, callers)
		slow := func(yield func(int, error) bool) {
			reading.Add(1)
			<-pass
			yield(1, nil)
		}
		for range callers {
			go func() {
				var last error
				for _, err := range inTurns(t.Context(), s.readers, slow) {
					last = err
				}
				done <- last
			}()
		}
		synctest.Wait()
		if now := reading.Load(); now != 2 {
			t.Errorf("%d read the past at once, want 2", now)
		}
		time.Sleep(turnWait + time.Second)
		synctest.Wait()
		if len(done) != callers-2 {
			t.Errorf("%d have stopped waiting, want %d", len(done), callers-2)
		}
		for range len(done) {
			if err := <-done; tutti.CodeOf(err) != tutti.CodeUnavailable {
				t.Errorf("who has waited for long: %v, want CodeUnavailable", err)
			}
		}
		close(pass)
		for range 2 {
			if err := <-done; err != nil {
				t.Errorf("who reads: %v", err)
			}
		}
	})
}
