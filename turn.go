package tutti

import (
	"context"
	"sync"
)

// Turn is the place that a call has among those that a bus lets its handler answer at once. The methods of a nil one,
// of a call that came by no bus, may be called.
type Turn struct {
	yield func()

	mu    sync.Mutex
	after []func() // in the order of the calls of AfterAnswer
}

type turnKey struct{}

// WithTurn returns a context for the handler of one call. leave gives the place to another call; it is called once.
func WithTurn(ctx context.Context, leave func()) (context.Context, *Turn) {
	t := &Turn{yield: sync.OnceFunc(leave)}
	return context.WithValue(ctx, turnKey{}, t), t
}

// TurnOf returns the turn of a call, nil if it came by no bus.
func TurnOf(ctx context.Context) *Turn {
	t, _ := ctx.Value(turnKey{}).(*Turn)
	return t
}

// Yield gives the place to another call. A handler calls it before it waits for something that bounds by itself how many
// go on after it. A second call does nothing.
func (t *Turn) Yield() {
	if t != nil {
		t.yield()
	}
}

// AfterAnswer calls f when the bus no longer holds the answer in memory. If the call did not come by a bus, f is
// called at once.
func (t *Turn) AfterAnswer(f func()) {
	if t == nil {
		f()
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.after = append(t.after, f)
}

// End is for the bus: it has sent the answer, or has it in a file. It gives up the place, too.
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
