package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// An agent that ends waits for no exchange that nobody makes any more: what it would have said is said
// by the next one. An agent that went on for seconds after its end kept the next one from its run.
func TestAnAgentThatEndsWaitsForNoExchange(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // of a test that fails
	defer cancel()
	x := &exchange{}
	x.due()
	waits := make(chan error, 1)
	go func() {
		_, err := x.wait(ctx)
		waits <- err
	}()
	x.leave()
	if err := <-waits; !errors.Is(err, errNotGreeted) {
		t.Errorf("who waited is told %v, want %v", err, errNotGreeted)
	}
	x.due()
	if _, err := x.wait(ctx); !errors.Is(err, errNotGreeted) {
		t.Errorf("who comes later is told %v, want %v", err, errNotGreeted)
	}

	done := &exchange{}
	done.due()
	done.end()
	done.leave()
	if _, err := done.wait(ctx); err != nil {
		t.Errorf("after the last exchange: %v; what is known may be said", err)
	}
}
