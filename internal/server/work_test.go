package server

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/denials"
	"github.com/tutti-project/tutti/internal/fold"
)

func quiet(*tx) error { return nil }

// A message that makes the writer panic ends neither the server nor what others say. Where half of what it says is in
// the state, nothing may go on.
func TestAPanicOfTheWriterFailsOneCommand(t *testing.T) {
	for _, tc := range []struct {
		reason string
		emits  int
		ends   bool
	}{{"nothing is said", 0, false}, {"something is", 1, true}} {
		w := &writer{Server: New(Options{Logger: slog.New(slog.DiscardHandler)}), state: fold.New()}
		on := &tx{State: w.state, server: w.Server}
		var err error
		ended := func() (ended bool) {
			defer func() { ended = recover() != nil }()
			err = w.work(on, &command{work: func(tx *tx) error {
				for range tc.emits {
					tx.emit(actorServer, denials.Entry("node:db-01", "act", tutti.Errorf(tutti.CodeRefused, "no")))
				}
				panic("a mistake")
			}})
			return false
		}()
		if ended != tc.ends || !ended && (tutti.CodeOf(err) != tutti.CodeInternal || !strings.Contains(err.Error(), "a mistake of the server")) {
			t.Errorf("%s: ended %t, %v", tc.reason, ended, err)
		}
		if err := w.work(on, &command{work: quiet}); err != nil {
			t.Errorf("%s: the next command: %v", tc.reason, err)
		}
	}
}
