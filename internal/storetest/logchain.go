package storetest

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

func entries(t *testing.T, log tutti.Log, after uint64) []tutti.Entry {
	t.Helper()
	chained, ok := log.(tutti.Chained)
	if !ok {
		t.Fatalf("%T is no tutti.Chained", log)
	}
	var got []tutti.Entry
	for e, err := range chained.Entries(t.Context(), after) {
		if err != nil {
			t.Fatalf("Entries(%d) after %d: %v", after, len(got), err)
		}
		got = append(got, e)
	}
	return got
}

func trimming(t *testing.T, log tutti.Log) tutti.Trimming {
	t.Helper()
	trimming, ok := log.(tutti.Trimming)
	if !ok {
		t.Fatalf("%T is no tutti.Trimming", log)
	}
	return trimming
}

// wantChain verifies the links of entries. The argument `before` is the link of the entry before the first one.
func wantChain(t *testing.T, before tutti.Digest, entries []tutti.Entry) {
	t.Helper()
	for _, e := range entries {
		if want := tutti.Link(before, e.Raw); e.Link != want {
			t.Fatalf("entry %d has link %s, want %s", e.Seq, e.Link, want)
		}
		before = e.Link
	}
}

func logLinks(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	first := []tutti.Event{value("a", 1), value("b", strings.Repeat("x", 200<<10)), value("c", 3)}
	last := mustAppend(t, log, 0, first...)
	second := []tutti.Event{value("d", 4)}
	last = mustAppend(t, log, last, second...)
	third := []tutti.Event{value("e", 5), value("f", 6)}
	mustAppend(t, reopen(), last, third...)
	got := entries(t, log, 0)
	wantChain(t, "", got)
	var set, read []tutti.Digest
	for _, e := range append(append(first, second...), third...) {
		set = append(set, e.Link)
	}
	for _, e := range got {
		read = append(read, e.Link)
	}
	if diff := cmp.Diff(set, read); diff != "" {
		t.Errorf("links set by Append and read as entries: -want +got\n%s", diff)
	}
}

func logLinksBehindOthers(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	other := reopen()
	last := mustAppend(t, log, 0, value("a", 1), value("b", 2))
	last = mustAppend(t, other, last, value("c", 3))
	last = mustAppend(t, log, last, value("d", 4))
	mustAppend(t, other, last, value("e", 5))
	got := entries(t, log, 0)
	wantChain(t, "", got)
	if len(got) != 5 {
		t.Errorf("%d entries, want 5", len(got))
	}
}

func logEntries(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	large := value("large", strings.Repeat("x", 200<<10))
	last := mustAppend(t, log, 0, value("a", 1), value("b", 2))
	mustAppend(t, log, last, value("c", 3), large, value("d", 4))
	for _, after := range []uint64{0, 1, 2, 3, 4, 5, 9} {
		var got []tutti.Event
		for _, entry := range entries(t, log, after) {
			var e tutti.Event
			if err := e.UnmarshalJSON(entry.Raw); err != nil {
				t.Fatal(err)
			}
			if e.Seq != 0 {
				t.Errorf("the bytes of entry %d contain the sequence %d", entry.Seq, e.Seq)
			}
			e.Seq, e.Link = entry.Seq, entry.Link
			got = append(got, e)
		}
		wantLog(t, log, after, got)
	}
}

func logLinkAt(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	first := []tutti.Event{value("a", 1), value("b", strings.Repeat("x", 200<<10)), value("c", 3)}
	last := mustAppend(t, log, 0, first...)
	taken := []tutti.Event{snapshot(first[2]), value("d", 4)}
	mustAppend(t, log, last, taken...)
	wantLinks := func(log tutti.Log, events ...tutti.Event) {
		for _, e := range events {
			if got, err := log.LinkAt(t.Context(), e.Seq); err != nil || got != e.Link {
				t.Errorf("LinkAt(%d): %s, %v, want %s", e.Seq, got, err, e.Link)
			}
		}
	}
	wantNone := func(log tutti.Log, seqs ...uint64) {
		for _, seq := range seqs {
			_, err := log.LinkAt(t.Context(), seq)
			wantCode(t, err, tutti.CodeNotFound)
		}
	}
	wantLinks(log, append(first, taken...)...)
	wantNone(log, 0, 6, 99)
	if err := trimming(t, log).Trim(t.Context(), 3); err != nil {
		t.Fatal(err)
	}
	for _, l := range []tutti.Log{log, reopen()} {
		wantLinks(l, taken...)
		wantNone(l, 0, 1, 2, 3, 6)
	}
}

func snapshot(through tutti.Event) tutti.Event {
	return tutti.Event{At: logTime, By: "server", Body: &tutti.SnapshotTaken{
		Through: through.Seq, Link: through.Link, State: tutti.DigestOf(nil), Events: int(through.Seq),
	}}
}

func wantSnapshot(t *testing.T, log tutti.Log, want *tutti.Event) {
	t.Helper()
	got, found, err := trimming(t, log).Snapshot(t.Context())
	if err != nil || found != (want != nil) {
		t.Fatalf("Snapshot: %v, found %v, want %v", err, found, want != nil)
	}
	if want == nil {
		want = &tutti.Event{}
	}
	if diff := cmp.Diff(*want, got); diff != "" {
		t.Errorf("Snapshot: -want +got\n%s", diff)
	}
}

func logSnapshot(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	wantSnapshot(t, log, nil)
	events := []tutti.Event{value("a", 1), value("b", 2)}
	last := mustAppend(t, log, 0, events...)
	wantSnapshot(t, log, nil)
	// Append the snapshot together with other events, as a writer does.
	batch := []tutti.Event{snapshot(events[1]), value("c", 3)}
	last = mustAppend(t, log, last, batch...)
	wantSnapshot(t, log, &batch[0])
	second := []tutti.Event{snapshot(batch[1])}
	last = mustAppend(t, log, last, second...)
	mustAppend(t, log, last, value("d", 4))
	wantSnapshot(t, log, &second[0])
	wantSnapshot(t, reopen(), &second[0])
}

func logTrim(t *testing.T, log tutti.Log, reopen func() tutti.Log) {
	events := []tutti.Event{value("a", 1), value("b", 2), value("c", 3)}
	last := mustAppend(t, log, 0, events[:2]...)
	last = mustAppend(t, log, last, events[2:]...)
	rest := []tutti.Event{value("d", 4), snapshot(events[1]), value("e", 5)}
	last = mustAppend(t, log, last, rest...)
	for range 2 {
		if err := trimming(t, log).Trim(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
	}
	kept := slices.Concat(events[2:], rest)
	for _, l := range []tutti.Log{log, reopen()} {
		wantLog(t, l, 2, kept)
		wantLog(t, l, 3, kept[1:])
		wantLog(t, l, last, nil)
		wantChain(t, events[1].Link, entries(t, l, 2))
		wantSnapshot(t, l, &rest[1])
		for _, after := range []uint64{0, 1} {
			for _, err := range l.Read(t.Context(), after) {
				wantCode(t, err, tutti.CodeNotFound)
			}
		}
		_, err := l.Append(t.Context(), 2, []tutti.Event{value("x", 9)})
		wantCode(t, err, tutti.CodeConflict)
	}
	next := []tutti.Event{value("f", 6), snapshot(rest[2])}
	last = mustAppend(t, log, last, next...)
	wantLog(t, log, 2, slices.Concat(kept, next))
	if err := trimming(t, log).Trim(t.Context(), rest[2].Seq); err != nil {
		t.Fatal(err)
	}
	wantLog(t, log, rest[2].Seq, next)
	after := []tutti.Event{value("g", 7)}
	mustAppend(t, reopen(), last, after...)
	wantLog(t, log, rest[2].Seq, append(next, after...))
	wantChain(t, rest[2].Link, entries(t, log, rest[2].Seq))
}

func logTrimRefused(t *testing.T, log tutti.Log, _ func() tutti.Log) {
	events := []tutti.Event{value("a", 1), value("b", 2), value("c", 3)}
	last := mustAppend(t, log, 0, events[:1]...)
	last = mustAppend(t, log, last, events[1:]...)
	trim := trimming(t, log)
	wantCode(t, trim.Trim(t.Context(), 1), tutti.CodeInvalid) // there is no snapshot
	lie := snapshot(events[0])
	lie.Body.(*tutti.SnapshotTaken).Link = events[1].Link
	all := slices.Concat(events, []tutti.Event{lie})
	last = mustAppend(t, log, last, all[3:]...)
	wantCode(t, trim.Trim(t.Context(), 1), tutti.CodeInvalid) // a snapshot of another log
	all = append(all, snapshot(events[2]))
	mustAppend(t, log, last, all[4:]...)
	wantCode(t, trim.Trim(t.Context(), 1), tutti.CodeInvalid) // not the latest snapshot
	wantCode(t, trim.Trim(t.Context(), 5), tutti.CodeInvalid) // more than the snapshot has
	wantLog(t, log, 0, all)
	if err := trim.Trim(t.Context(), 3); err != nil {
		t.Error(err)
	}
	wantLog(t, log, 3, all[3:])
}
