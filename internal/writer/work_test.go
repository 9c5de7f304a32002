package writer

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/denials"
)

func quiet(*Tx) error { return nil }

// If a message makes the writer panic, the server goes on, and the other messages get their answers. If the state
// already has a part of the message's events, the server must end.
func TestAPanicOfTheWriterFailsOneCommand(t *testing.T) {
	for _, tc := range []struct {
		reason string
		emits  int
		ends   bool
	}{{"nothing is said", 0, false}, {"something is", 1, true}} {
		w := New(Options{Logger: slog.New(slog.DiscardHandler)}, nil)
		on := &Tx{State: w.state}
		var err error
		ended := func() (ended bool) {
			defer func() { ended = recover() != nil }()
			err = w.work(on, &command{work: func(tx *Tx) error {
				for range tc.emits {
					tx.Emit(Actor, denials.Entry("node:db-01", "act", tutti.Errorf(tutti.CodeRefused, "no")))
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
