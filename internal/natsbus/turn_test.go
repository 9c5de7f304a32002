package natsbus_test

import (
	"context"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// TestAHandlerThatWaitsGivesUpItsPlace checks that other calls are answered while one handler waits. A
// handler can register a function that runs after the handler has returned. The function also runs if
// the handler returns an error.
func TestAHandlerThatWaitsGivesUpItsPlace(t *testing.T) {
	bus := bustest.Start(t)
	waits, others, after := make(chan struct{}), make(chan struct{}), make(chan string, 2)
	serve(t, bus, func(ctx context.Context, _ tutti.NodeKey, op string, _ []byte) ([]byte, error) {
		turn := tutti.TurnOf(ctx)
		switch op {
		case "wait":
			turn.AfterAnswer(func() { after <- op })
			turn.Yield()
			turn.Yield()
			close(waits)
			<-others
			after <- "handler"
			return nil, tutti.Errorf(tutti.CodeRefused, "no")
		default:
			return []byte("yes"), nil
		}
	}, func(o *natsbus.ServeOptions) { o.Concurrency = 1 })
	c := dial(t, bus, bus.Join(t, "web"))
	done := make(chan error, 1)
	go func() {
		_, err := c.Call(within(t), "wait", nil)
		done <- err
	}()
	<-waits
	if _, err := c.Call(within(t), "other", nil); err != nil {
		t.Error(err)
	}
	close(others)
	wantCode(t, receive(t, done, "answer"), tutti.CodeRefused)
	for _, want := range []string{"handler", "wait"} {
		if got := receive(t, after, "end"); got != want {
			t.Errorf("%s has ended, want %s", got, want)
		}
	}
}
