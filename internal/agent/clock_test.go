package agent_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// wholeReport returns the report of a whole run that took a second. By the node's clock, the run ended
// the given time ago.
func wholeReport(t *testing.T, run tutti.RunID, ended time.Duration) string {
	t.Helper()
	at := time.Now().Add(-ended)
	raw, err := json.Marshal(tutti.Foreign{Whole: true, Result: tutti.Result{Run: run, Outcome: tutti.Changed, StartedAt: at.Add(-time.Second), EndedAt: at}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// foreigns returns the foreign runs in the log.
func (l *lab) foreigns() []*tutti.RunForeign {
	var out []*tutti.RunForeign
	for _, e := range l.fleet.Events() {
		if b, ok := e.Body.(*tutti.RunForeign); ok {
			out = append(out, b)
		}
	}
	return out
}

// tellsOf waits until the agent has reported n foreign runs, and returns the last
// one.
func (l *lab) tellsOf(n int) *tutti.RunForeign {
	l.t.Helper()
	l.line.wait("foreign runs to be told", func() bool { return len(l.foreigns()) == n })
	return l.foreigns()[n-1]
}

// TestTheAgentCounts: the order of runs does not depend on the time of day. The place of a run of
// Tutti in this order is the moment of its gate. The place of a foreign run is the moment when the
// agent saw the run. An agent that has lost its count begins a new count, under another name.
func TestTheAgentCounts(t *testing.T) {
	w, opt := witnesses(t)
	l := newLab(t, applies)
	l.start(opt, quick)
	l.quiet(w)
	first := l.end(l.job())
	w.leave(t, wholeReport(t, foreignID(1), 0))
	theirs := l.tellsOf(1)
	second := l.end(l.job())
	l.start(opt, quick)
	third := l.end(l.job())
	order := []tutti.Clock{first.Clock, theirs.Result.Clock, second.Clock, third.Clock}
	for i := range order[1:] {
		if !order[i].Before(order[i+1]) {
			t.Errorf("%+v does not come before %+v", order[i], order[i+1])
		}
	}
	for reason, spoil := range map[string]func(string) error{
		"lost":    os.Remove,
		"damaged": func(path string) error { return os.WriteFile(path, []byte("{}"), 0o600) },
	} {
		if err := spoil(filepath.Join(l.dir, agent.ClockFile)); err != nil {
			t.Fatal(err)
		}
		if again := l.end(l.job()); again.Clock.Line == "" || again.Clock.Line == third.Clock.Line {
			t.Errorf("%s: %+v after %+v, want another line", reason, again.Clock, third.Clock)
		}
	}
}

// TestARunStandsAtItsGate: if a foreign run ended while our run compiled, the
// foreign run counts as earlier.
func TestARunStandsAtItsGate(t *testing.T) {
	w, opt := witnesses(t)
	var l *lab
	l = newLab(t, func(p *puppet) tutti.Result {
		w.leave(t, wholeReport(t, foreignID(1), 0))
		l.tellsOf(1)
		return applies(p)
	})
	l.start(opt, quick)
	l.quiet(w)
	ours := l.end(l.job())
	if theirs := l.foreigns()[0].Result.Clock; !theirs.Before(ours.Clock) {
		t.Errorf("%+v does not come before %+v", theirs, ours.Clock)
	}
}

// TestAWholeRunIsToldAsNews: a whole run counts as news if the agent that has seen
// it reports it within a minute.
func TestAWholeRunIsToldAsNews(t *testing.T) {
	for _, tc := range []struct {
		reason string
		ended  time.Duration
		then   func(l *lab, w *witness)
		whole  bool
	}{
		{"at once", 0, func(*lab, *witness) {}, true},
		{"it ended two minutes before it was seen", 2 * time.Minute, func(*lab, *witness) {}, false},
		{"it began in a time to come", -time.Hour, func(*lab, *witness) {}, false},
		{"by another agent", 0, func(l *lab, w *witness) {
			l.line.until(wire.OpForeign, 1) // the server is away
			_, opt := witnesses(t)
			l.kill()
			l.line.mend()
			l.start(opt, quick)
		}, false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			w, opt := witnesses(t)
			l.start(opt, quick)
			l.quiet(w)
			if !tc.whole && tc.ended == 0 {
				l.line.sever()
			}
			w.leave(t, wholeReport(t, foreignID(1), tc.ended))
			tc.then(l, w)
			if f := l.tellsOf(1); f.Whole != tc.whole || (f.Ago >= time.Second) != tc.whole || f.Ago > hang {
				t.Errorf("whole %t, it began %s ago; want whole %t", f.Whole, f.Ago, tc.whole)
			}
		})
	}
}
