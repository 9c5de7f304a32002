package engine_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// TestARunOfUnknownTimeIsNotSince checks foreign runs that were reported a minute after event 7. If the agent does
// not say when a run began, the run does not count as begun after the event.
func TestARunOfUnknownTimeIsNotSince(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for ago, want := range map[time.Duration]bool{0: false, 30 * time.Second: true, time.Minute: false} {
		r := engine.Run{Foreign: &tutti.Foreign{Ago: ago}, EndedSeq: 9, EndedAt: at.Add(time.Minute)}
		if got := r.Since(7, at); got != want {
			t.Errorf("a run that began %s before its report: %t, want %t", ago, got, want)
		}
	}
	r := engine.Run{Foreign: &tutti.Foreign{Ago: time.Second}, EndedSeq: 6, EndedAt: at.Add(time.Minute)}
	if r.Since(7, at) {
		t.Error("a run that was reported before the event began after it")
	}
}
