package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

func TestTheDeadlineOfALockIsNoError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Try often, because any of the watchers may notice the deadline first.
	for range 50 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		released, err := waitLock(ctx, path, os.Getpid(), func() {})
		cancel()
		if released || err != nil {
			t.Fatalf("released %t, %v: want not released, and no error", released, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	gone := errors.New("the agent ends")
	cancel(gone)
	if released, err := waitLock(ctx, path, os.Getpid(), func() {}); released || !errors.Is(err, gone) {
		t.Errorf("released %t, %v, want the cause", released, err)
	}
}

// A machine that the server does not accept as the node repeats its messages at growing intervals.
// When the server returns another error, the pause is short again.
func TestAMachineThatIsNotTakenHoldsOff(t *testing.T) {
	var h holdOff
	unknown := tutti.Errorf(tutti.CodeUnauthenticated, "two machines have the key of node db-01")
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		if got := h.after(unknown); got != want*time.Second {
			t.Errorf("try %d is put off by %s, want %s", i+1, got, want*time.Second)
		}
	}
	if got := h.after(errors.New("the line is cut")); got != retryAfter {
		t.Errorf("after another error: %s, want %s", got, retryAfter)
	}
	if got := h.after(unknown); got != time.Second {
		t.Errorf("at first again: %s", got)
	}
}
