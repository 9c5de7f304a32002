// Package storetest has the tests that every tutti.Log and every tutti.Blobs must pass, both durable stores and stores
// in memory.
package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// OpenLog makes an empty log. The function `reopen` opens the same log again, as a second writer or after a crash.
type OpenLog func(t *testing.T) (log tutti.Log, reopen func() tutti.Log)

// TestLog runs the suite of tutti.Log.
func TestLog(t *testing.T, open OpenLog) {
	for _, c := range []struct {
		reason string
		test   func(t *testing.T, log tutti.Log, reopen func() tutti.Log)
	}{
		{"a new log is empty", logEmpty},
		{"the appended events can be read, in order, with their sequences", logRoundTrip},
		{"reading begins after the given sequence", logReadAfter},
		{"a reader may stop early", logReadBreak},
		{"a reader sees no event from after its call", logReadSnapshot},
		{"an append after any sequence but the last is a conflict and stores nothing", logConflict},
		{"if there are many appends after the same event, exactly one is stored", logRace},
		{"a batch without events, or with an event that cannot be stored, is refused completely", logInvalid},
		{"an event may have any id", logIDs},
		{"events of any size are stored completely, also in a batch", logLarge},
		{"a batch of thousands is one batch", logManyEvents},
		{"a log that is opened again still has its events, and refuses the previous writer", logReopen},
		{"a cancelled append or read returns the error of its context", logCancelled},
		{"every entry is linked to the one before it", logLinks},
		{"links continue after the events of another writer", logLinksBehindOthers},
		{"entries have exactly the bytes of the events", logEntries},
		{"the log returns the link of a single event", logLinkAt},
		{"the latest snapshot is found, also when the log is opened again", logSnapshot},
		{"the log drops the events that a snapshot has, and reading begins after them", logTrim},
		{"the log drops no event that the latest snapshot lacks", logTrimRefused},
	} {
		t.Run(c.reason, func(t *testing.T) {
			log, reopen := open(t)
			c.test(t, log, reopen)
		})
	}
}

var logTime = time.Date(2026, 7, 1, 12, 0, 0, 123456789, time.UTC)

func value(key string, v any) tutti.Event {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // these are constants of the suite
	}
	return tutti.Event{At: logTime, By: "operator:anna", Body: &tutti.ValueSet{Key: key, Value: raw}}
}

// mustAppend sets a longer deadline than the default of the log, because the suite must also pass on a slow machine.
func mustAppend(t *testing.T, log tutti.Log, last uint64, events ...tutti.Event) uint64 {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	seq, err := log.Append(ctx, last, events)
	if err != nil {
		t.Fatalf("Append(%d, %d events): %v", last, len(events), err)
	}
	return seq
}

func readAll(t *testing.T, log tutti.Log, after uint64) []tutti.Event {
	t.Helper()
	var events []tutti.Event
	for e, err := range log.Read(t.Context(), after) {
		if err != nil {
			t.Fatalf("Read(%d) after %d events: %v", after, len(events), err)
		}
		events = append(events, e)
	}
	return events
}

func wantLog(t *testing.T, log tutti.Log, after uint64, want []tutti.Event) {
	t.Helper()
	// To compare megabytes element by element would take seconds.
	whole := cmp.Comparer(func(a, b json.RawMessage) bool { return bytes.Equal(a, b) })
	if diff := cmp.Diff(want, readAll(t, log, after), whole); diff != "" {
		t.Errorf("Read(%d): -want +got\n%s", after, diff)
	}
}

func wantCode(t *testing.T, err error, want ...tutti.Code) {
	t.Helper()
	for _, code := range want {
		if tutti.CodeOf(err) == code {
			return
		}
	}
	t.Errorf("got error %v with code %q, want code %q", err, tutti.CodeOf(err), want)
}

func logEmpty(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	wantLog(t, log, 0, nil)
	wantLog(t, log, 7, nil)
}

func logRoundTrip(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	events := []tutti.Event{
		value("a", 1),
		{At: logTime, By: "server", Body: &tutti.RunClaimed{Run: "00000000-0000-4000-8000-000000000001", Node: "web.example.net"}},
		{At: logTime, By: "node:web", Body: &tutti.RunFinished{Result: tutti.Result{
			Run: "00000000-0000-4000-8000-000000000001", Outcome: tutti.Failed, Reason: tutti.BecauseCompile,
			Failures: []tutti.Failure{{Resource: "File[/x]", File: "/m/init.pp", Line: 3, Message: "no"}}, StartedAt: logTime, EndedAt: logTime,
		}}},
		value("b/c", map[string]any{"x": []any{nil, true, "ü"}}),
	}
	last := mustAppend(t, log, 0, events[:1]...)
	last = mustAppend(t, log, last, events[1:]...)
	var seqs []uint64
	for _, e := range events {
		seqs = append(seqs, e.Seq)
	}
	if diff := cmp.Diff([]uint64{1, 2, 3, 4}, seqs); diff != "" || last != 4 {
		t.Errorf("sequences set by Append: -want +got\n%s\nlast %d, want 4", diff, last)
	}
	wantLog(t, log, 0, events)
}

func logReadAfter(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	events := []tutti.Event{value("a", 1), value("b", 2), value("c", 3)}
	mustAppend(t, log, 0, events...)
	wantLog(t, log, 2, events[2:])
	wantLog(t, log, 3, nil)
	wantLog(t, log, 99, nil)
}

func logReadBreak(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	events := []tutti.Event{value("a", 1), value("b", 2), value("c", 3)}
	mustAppend(t, log, 0, events...)
	for e, err := range log.Read(t.Context(), 0) {
		if err != nil || e.Seq != 1 {
			t.Fatalf("first event: %v, %v", e, err)
		}
		break
	}
	wantLog(t, log, 0, events)
}

func logReadSnapshot(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	last := mustAppend(t, log, 0, value("a", 1), value("b", 2))
	seen := 0
	for _, err := range log.Read(t.Context(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		seen++
		if seen <= 2 {
			last = mustAppend(t, log, last, value("later", seen))
		}
	}
	if seen != 2 {
		t.Errorf("saw %d events, want the 2 at the time of the call", seen)
	}
}

func logConflict(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	for _, last := range []uint64{1, 99} {
		_, err := log.Append(t.Context(), last, []tutti.Event{value("a", 1)})
		wantCode(t, err, tutti.CodeConflict)
	}
	events := []tutti.Event{value("a", 1), value("b", 2)}
	mustAppend(t, log, 0, events...)
	for _, last := range []uint64{0, 1, 3} {
		_, err := log.Append(t.Context(), last, []tutti.Event{value("a", 9)})
		wantCode(t, err, tutti.CodeConflict)
		_, err = log.Append(t.Context(), last, []tutti.Event{value("b", 9), value("c", 9), value("d", 9)})
		wantCode(t, err, tutti.CodeConflict)
	}
	wantLog(t, log, 0, events)
	mustAppend(t, log, 2, value("c", 3))
}

func logRace(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	const rivals = 8
	var wins, others sync.Map
	var wg sync.WaitGroup
	for i := range rivals {
		rival := log
		if i%2 == 1 {
			rival = reopen()
		}
		wg.Go(func() {
			events := []tutti.Event{value("a", i), value("b", i)}
			if _, err := rival.Append(t.Context(), 0, events); err == nil {
				wins.Store(i, events)
			} else if tutti.CodeOf(err) != tutti.CodeConflict {
				others.Store(i, err)
			}
		})
	}
	wg.Wait()
	others.Range(func(i, err any) bool { t.Errorf("rival %v: %v", i, err); return true })
	count, winner := 0, []tutti.Event(nil)
	wins.Range(func(_, events any) bool { count++; winner = events.([]tutti.Event); return true })
	if count != 1 {
		t.Fatalf("%d appends were acknowledged, want 1", count)
	}
	wantLog(t, log, 0, winner)
}

func logInvalid(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	broken := tutti.Event{At: logTime, By: "server", Body: &tutti.ValueSet{Key: "a", Value: json.RawMessage(`{`)}}
	for _, events := range [][]tutti.Event{nil, {broken}, {value("a", 1), broken}, {value("a", 1), {At: logTime}}} {
		_, err := log.Append(t.Context(), 0, events)
		wantCode(t, err, tutti.CodeInvalid)
	}
	wantLog(t, log, 0, nil)
}

func logIDs(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	var events []tutti.Event
	for _, id := range []string{"", ".", "a.b", "*", ">", "a b", "a\nb", "a\x00b", "ü", "a/b:c", "-", "$JS.API.>", strings.Repeat("x", 4000), strings.Repeat("ü", 400)} {
		events = append(events, value(id, 1))
	}
	mustAppend(t, log, 0, events...)
	wantLog(t, log, 0, events)
}

func logLarge(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	var events []tutti.Event
	for i, size := range []int{100, 127 << 10, 128 << 10, 300 << 10, 3 << 20, 100} {
		events = append(events, value(fmt.Sprint(i), strings.Repeat("x", size)))
	}
	last := mustAppend(t, log, 0, events[3:4]...)
	mustAppend(t, log, last, events[:3]...)
	mustAppend(t, log, last+3, events[4:]...)
	want := append([]tutti.Event{events[3], events[0], events[1], events[2]}, events[4:]...)
	_, err := log.Append(t.Context(), last+5, []tutti.Event{value("fits", 1), value("too large", strings.Repeat("x", tutti.MaxEvent))})
	wantCode(t, err, tutti.CodeInvalid)
	wantLog(t, log, 0, want)
}

func logManyEvents(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	events := make([]tutti.Event, 5000)
	for i := range events {
		events[i] = value(fmt.Sprint(i), strings.Repeat("x", 100))
	}
	if last := mustAppend(t, log, 0, events...); last != events[len(events)-1].Seq {
		t.Errorf("Append returned %d, want the last event's sequence %d", last, events[len(events)-1].Seq)
	}
	wantLog(t, log, 0, events)
}

func logReopen(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	events := []tutti.Event{value("a", 1), value("b", 2), value("c", 3)}
	last := mustAppend(t, log, 0, events[:2]...)
	again := reopen()
	wantLog(t, again, 0, events[:2])
	mustAppend(t, again, last, events[2:]...)
	_, err := log.Append(t.Context(), last, []tutti.Event{value("old", 9)})
	wantCode(t, err, tutti.CodeConflict)
	wantLog(t, again, 0, events)
	wantLog(t, log, 0, events)
}

func logCancelled(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	mustAppend(t, log, 0, value("a", 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := log.Append(ctx, 1, []tutti.Event{value("b", 2)})
	wantCode(t, err, tutti.CodeUnavailable, tutti.CodeDeadline)
	for _, err := range log.Read(ctx, 0) {
		wantCode(t, err, tutti.CodeUnavailable, tutti.CodeDeadline)
	}
}
