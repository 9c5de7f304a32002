package natsbus

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"

	"github.com/tutti-project/tutti"
)

// TestNodesTakeTurns checks that a node's first waiting call begins before the second waiting call
// of any other node.
func TestNodesTakeTurns(t *testing.T) {
	turns := newTurns(2)
	var began []string
	enter := func(node, call string) {
		turns.enter(tutti.NodeKey(node), func() { began = append(began, node+" "+call) })
	}
	for _, call := range []string{"1", "2", "3", "4", "5"} {
		enter("evil", call)
	}
	enter("web", "1")
	enter("db", "1")
	enter("web", "2")
	want := []string{"evil 1", "evil 2"}
	if diff := cmp.Diff(want, began); diff != "" {
		t.Errorf("at once: -want +got\n%s", diff)
	}
	for range 8 {
		turns.leave()
	}
	want = append(want, "evil 3", "web 1", "db 1", "evil 4", "web 2", "evil 5")
	if diff := cmp.Diff(want, began); diff != "" {
		t.Errorf("in turn: -want +got\n%s", diff)
	}
	enter("evil", "6")
	enter("evil", "7")
	enter("evil", "8")
	if diff := cmp.Diff(append(want, "evil 6", "evil 7"), began); diff != "" {
		t.Errorf("when all have left: -want +got\n%s", diff)
	}
}

// TestAskAgainComesALittleLater checks that the answer "ask again" is delayed a little, and that
// all other answers are sent at once.
func TestAskAgainComesALittleLater(t *testing.T) {
	for _, tc := range []struct {
		reason string
		answer *nats.Msg
		later  bool
	}{
		{"an answer", success(nil), false},
		{"a refusal", failure(tutti.Errorf(tutti.CodeRefused, "no")), false},
		{"ask again", failure(tutti.Errorf(tutti.CodeUnavailable, "ask again")), true},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			new(server).hold(t.Context(), tc.answer)
			if later := time.Since(began) > 0; later != tc.later {
				t.Errorf("%s: it was held for %s", tc.reason, time.Since(began))
			}
		})
	}
}
