package tutti

import (
	"context"
	"sync"
)

// Turn is the place of one call. The number of places limits how many calls a bus's handler answers at the same time.
// All methods may be called on a nil Turn, which belongs to a call that did not come by a bus.
type Turn struct {
	yield func()

	mu    sync.Mutex
	after []func() // the functions are in the order of the calls of AfterAnswer
}

type turnKey struct{}

// WithTurn returns a context for the handler of one call. The function `leave` releases the place for another call.
// Turn calls this function only once.
func WithTurn(ctx context.Context, leave func()) (context.Context, *Turn) {
	t := &Turn{yield: sync.OnceFunc(leave)}
	return context.WithValue(ctx, turnKey{}, t), t
}

// TurnOf returns the turn of a call. TurnOf returns nil if the call did not come by a bus.
func TurnOf(ctx context.Context) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t
}

// Yield releases the place for another call. A handler calls Yield before it waits for a resource that has its own
// limit of calls. A second call of Yield does nothing.
func (t *Turn) Yield() {
	if t != nil {
		t.yield()
	}
}

// AfterAnswer calls f when the bus no longer holds the answer in memory. If the call did not come by a bus,
// AfterAnswer calls f at once.
func (t *Turn) AfterAnswer(f func()) {
	if t == nil {
		f()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = append(t.after, f)
}

// End releases the place. The bus calls End after it has sent the answer or written it to a file.
func (t *Turn) End() {
	t.yield()
	t.mu.Lock()
	after := t.after
	t.after = nil
	t.mu.Unlock()
	for _, f := range after {
		f()
	}
}
