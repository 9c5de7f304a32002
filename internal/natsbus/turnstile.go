package natsbus

import (
	"context"
	"sync"
	"time"
)

// turnstile counts the running calls. turnstile can be shut for a moment, for example to replace the connection that
// calls use. The zero value is open.
type turnstile struct {
	mu     sync.Mutex
	inside int
	shut   chan struct{} // closed when the turnstile opens again; nil while the turnstile is open
	empty  chan struct{} // closed when the last call leaves; nil if nobody waits for this
}

// The method `enter` waits while the turnstile is shut, or until ctx ends. If ctx ends first, enter
// returns the cause of ctx. If enter returns no error, the caller must call leave later.
func (t *turnstile) enter(ctx context.Context) error {
	for {
		t.mu.Lock()
		shut := t.shut
		if shut == nil {
			t.inside++
			t.mu.Unlock()
			return nil
		}
		t.mu.Unlock()
		select {
		case <-shut:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

func (t *turnstile) leave() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.inside--; t.inside == 0 && t.empty != nil {
		close(t.empty)
		t.empty = nil
	}
}

// The method `close` shuts the turnstile and waits until all calls have left. If this takes longer than `patience`,
// close opens the turnstile again and returns false.
func (t *turnstile) close(patience time.Duration) bool {
	t.mu.Lock()
	t.shut = make(chan struct{})
	if t.inside == 0 {
		t.mu.Unlock()
		return true
	}
	empty := make(chan struct{})
	t.empty = empty
	t.mu.Unlock()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-empty:
		return true
	case <-timer.C:
		t.open()
		return false
	}
}

// The method `open` opens the turnstile. After close has returned true, the caller must call open once.
func (t *turnstile) open() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.empty = nil
	close(t.shut)
	t.shut = nil
}
