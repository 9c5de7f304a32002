package agent

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestTheDeadlineOfALockIsNoError(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	// Whichever of the watchers notices first.
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
