package audit_test

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/audit"
)

var begin = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// The function `entries` draws a log. The log has gaps where appends were incomplete.
func entries(t *rapid.T) []tutti.Entry {
	var log []tutti.Entry
	var link tutti.Digest
	seq := uint64(0)
	for i := range rapid.IntRange(2, 20).Draw(t, "entries") {
		e := tutti.Event{At: begin.Add(time.Duration(i) * time.Minute), By: "server"}
		switch key := fmt.Sprintf("shared/<%d>&", i); rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			e.By, e.Body = "operator:ada", &tutti.ValueSet{Key: key, Value: json.RawMessage(`"<&>\u2028"`)}
		case 1:
			e.By, e.Body = "node:web", &tutti.ValueSet{Key: key, Value: json.RawMessage(`1`), Owner: "web"}
		default:
			e.Body = &tutti.Denied{Who: "node:web", What: key, Reason: "no grant"}
		}
		raw, err := json.Marshal(e)
		if err != nil {
			t.Fatal(err)
		}
		seq += uint64(rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "step"))
		link = tutti.Link(link, raw)
		log = append(log, tutti.Entry{Seq: seq, Raw: raw, Link: link})
	}
	return log
}

func each(log []tutti.Entry) iter.Seq2[tutti.Entry, error] {
	return func(yield func(tutti.Entry, error) bool) {
		for _, e := range log {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// The function `trail` returns the entries of a log in the form in which an audit reads them. The first
// entries come from segments, and the later entries from the log.
func trail(t *rapid.T, log []tutti.Entry) []api.AuditEntry {
	var out []api.AuditEntry
	var before tutti.Digest
	for range 2 {
		n := rapid.IntRange(0, len(log)).Draw(t, "segment")
		if n == 0 {
			continue
		}
		blob, seg, err := audit.Segment(before, each(log[:n]))
		if err != nil {
			t.Fatal(err)
		}
		if seg.First != log[0].Seq || seg.Last != log[n-1].Seq || seg.Before != before || seg.After != log[n-1].Link {
			t.Fatalf("segment %+v of %+v", seg, log[:n])
		}
		for e, err := range audit.Entries(seg, blob) {
			if err != nil {
				t.Fatal(err)
			}
			if len(out) > 0 {
				e.Before = ""
			}
			out = append(out, e)
		}
		before, log = seg.After, log[n:]
	}
	for _, e := range log {
		out = append(out, audit.Of(e, ""))
	}
	return out
}

func verify(trail []api.AuditEntry) (audit.Chain, error) {
	var c audit.Chain
	for _, e := range trail {
		if err := c.Add(e); err != nil {
			return c, err
		}
	}
	return c, nil
}

func TestATrailIsTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := entries(t)
		trail := trail(t, log)
		c, err := verify(trail)
		if err != nil {
			t.Fatal(err)
		}
		last, bare := log[len(log)-1], 0
		for _, e := range trail {
			if len(e.Raw) == 0 {
				bare++
			}
		}
		if want := (audit.Chain{First: log[0].Seq, Last: last.Seq, Link: last.Link, Count: len(log), Bare: bare}); c != want {
			t.Fatalf("verified %+v, want %+v", c, want)
		}
		for i, e := range trail {
			var event tutti.Event
			if err := json.Unmarshal(log[i].Raw, &event); err != nil {
				t.Fatal(err)
			}
			if audit.Act(event) != (event.By != "node:web") {
				t.Fatalf("%s by %s: Act is %v", event.Body.Kind(), event.By, audit.Act(event))
			}
			if len(e.Raw) > 0 && string(e.Raw) != string(log[i].Raw) || len(e.Raw) == 0 && audit.Act(event) {
				t.Fatalf("entry %d is kept as %q, was %q", e.Seq, e.Raw, log[i].Raw)
			}
		}
	})
}

// TestAnyChangeOfATrailIsFound changes, removes, moves, repeats or inserts one entry. The test ignores
// a change of the trail's end. Only somebody who knows the link of the last entry can find such a
// change.
func TestAnyChangeOfATrailIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := entries(t)
		good := trail(t, log)
		head := good[len(good)-1]
		bad := slices.Clone(good)
		i := rapid.IntRange(0, len(bad)-1).Draw(t, "at")
		other := tutti.DigestOf([]byte("another"))
		switch what := rapid.SampledFrom([]string{"bytes", "digest", "link", "remove", "swap", "repeat", "insert", "before", "renumber"}).Draw(t, "what"); what {
		case "bytes":
			raw := slices.Clone(log[i].Raw)
			raw[rapid.IntRange(0, len(raw)-1).Draw(t, "byte")] ^= 1
			bad[i].Raw, bad[i].Digest = raw, ""
		case "digest":
			bad[i].Raw, bad[i].Digest = nil, other
		case "link":
			bad[i].Link = other
		case "remove":
			bad = slices.Delete(bad, i, i+1)
		case "swap":
			j := (i + 1) % len(bad)
			bad[i].Raw, bad[j].Raw = bad[j].Raw, bad[i].Raw
			bad[i].Digest, bad[j].Digest = bad[j].Digest, bad[i].Digest
		case "repeat":
			bad = slices.Insert(bad, i, bad[i])
		case "insert":
			bad = slices.Insert(bad, i, api.AuditEntry{Seq: bad[i].Seq, Digest: other, Link: tutti.LinkOf("", other)})
		case "before":
			bad[i].Before = other
		case "renumber":
			bad[i].Seq = 0
		}
		c, err := verify(bad)
		if err == nil && (c.Last != head.Seq || c.Link != head.Link) {
			return // only somebody who knows the link of the last entry can find this change
		}
		if tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Fatalf("verified %+v, %v: -good +bad\n%s", c, err, cmp.Diff(good, bad))
		}
	})
}

func TestAnyChangeOfASegmentIsFound(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := entries(t)
		blob, seg, err := audit.Segment("", each(log))
		if err != nil {
			t.Fatal(err)
		}
		if want := begin.Add(time.Duration(len(log)-1) * time.Minute); !seg.Until.Equal(want) {
			t.Fatalf("until %v, want %v", seg.Until, want)
		}
		switch rapid.IntRange(0, 5).Draw(t, "what") {
		case 0:
			blob = slices.Clone(blob)
			blob[rapid.IntRange(0, len(blob)-1).Draw(t, "byte")] ^= 1
		case 1:
			blob = blob[:rapid.IntRange(0, len(blob)-1).Draw(t, "length")]
		case 2: // a valid segment, but with other entries
			var other tutti.AuditSegment
			blob, other, err = audit.Segment("", each(log[:len(log)-1]))
			if err != nil {
				t.Fatal(err)
			}
			seg.Blob = other.Blob
		case 3:
			seg.After = tutti.DigestOf(nil)
		case 4:
			seg.Before = tutti.DigestOf(nil)
		case 5:
			seg.First++
		}
		err = nil
		for _, err = range audit.Entries(seg, blob) {
		}
		if tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Fatalf("read without an error that says so: %v", err)
		}
	})
}

func TestASegmentIsMadeOfWhatFitsOnly(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := entries(t)
		i := rapid.IntRange(0, len(log)-1).Draw(t, "at")
		log[i].Link = tutti.DigestOf(nil)
		if _, _, err := audit.Segment("", each(log)); tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Fatalf("made a segment: %v", err)
		}
	})
	if _, _, err := audit.Segment("", each(nil)); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("made a segment of nothing: %v", err)
	}
}

func TestSegmentsExpire(t *testing.T) {
	segments := []tutti.AuditSegment{{First: 1, Until: begin}, {First: 5, Until: begin.Add(time.Hour)}, {First: 9, Until: begin.Add(48 * time.Hour)}}
	for now, want := range map[time.Time]int{begin: 3, begin.Add(audit.Keep): 3, begin.Add(audit.Keep + time.Minute): 2, begin.Add(2 * audit.Keep): 0} {
		if got := audit.Unexpired(segments, now); len(got) != want || len(segments) != 3 {
			t.Errorf("at %v: %d segments, want %d", now, len(got), want)
		}
	}
}

// The trail keeps the content of every event by an operator. The test lists the kinds of events whose
// content the trail always keeps, whoever caused the event.
func TestWhatIsKeptWhoeverCausedIt(t *testing.T) {
	want := []string{
		"audit.denied",
		"ca.rotated", "code.released", "code.signed",
		"epoch.begun",
		"job.cancelled", "job.finished", "job.retired", "job.started",
		"joinca.set",
		"keys.trusted",
		"node.approved", "node.boxed", "node.conflicted", "node.enrolled", "node.kept", "node.pending", "node.rejected", "node.removed", "node.replaceable", "node.setback",
		"operator.issued", "operator.revoked", "operators.trusted",
		"token.created", "token.revoked",
	}
	var got []string
	for _, kind := range tutti.Kinds() {
		body := &tutti.UnknownEvent{Name: kind}
		if audit.Act(tutti.Event{By: "server", Body: body}) {
			got = append(got, kind)
		}
		if !audit.Act(tutti.Event{By: "operator:ada", Body: body}) {
			t.Errorf("%s by an operator is not kept", kind)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +kept\n%s", diff)
	}
}
