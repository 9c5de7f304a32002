package agent

import (
	"context"
	"errors"
	"testing"
	"time"
)

// An agent that ends does not wait for the exchange of the ticket, because the agent makes no further
// exchange. The next agent sends what the ended agent did not send. In an earlier release, the agent
// kept waiting for seconds when it should end, and delayed the next agent's run.
func TestAnAgentThatEndsWaitsForNoExchange(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // if nothing ends the wait, the test ends after this time
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
