package agent

import (
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"

	"github.com/tutti-project/tutti"
)

// TestRunsThatAreHeardAtOnce: the watch and a local run put runs into the outbox at the same time. Each run gets a
// separate place.
func TestRunsThatAreHeardAtOnce(t *testing.T) {
	a := New(Options{Dir: t.TempDir(), Logger: slog.New(slog.DiscardHandler)})
	if err := os.MkdirAll(a.foreignDir(), 0o700); err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			run := tutti.Foreign{Result: tutti.Result{Run: tutti.RunID(fmt.Sprintf("f%07d-0000-4000-8000-000000000000", i))}}
			if err := a.hear(run, nil); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	heard, err := a.outbox()
	if err != nil || len(heard) != 8 {
		t.Fatalf("the outbox has %d runs, want 8, %v", len(heard), err)
	}
	for i, h := range heard {
		if h.Nth != i+1 {
			t.Errorf("run %d is number %d", i+1, h.Nth)
		}
	}
}
