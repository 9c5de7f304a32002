package natsbus_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/bustest"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// A restored log has the same sequences and links as the original. The restored
// log begins after the events that were dropped, and has a gap where a loss of
// power had torn an append. The restored log can be appended to and opened
// again.
func TestARestoredLogIsTheSame(t *testing.T) {
	t.Parallel()
	bus := bustest.Start(t)
	conn := bus.Log(t)
	before := tutti.DigestOf([]byte("what is gone"))
	link := before
	var want []tutti.Entry
	for i, body := range []tutti.Body{
		&tutti.ValueSet{Key: "a", Value: json.RawMessage(`"<&>"`)},
		&tutti.ValueSet{Key: "b", Value: json.RawMessage(`2`)},
		&tutti.SnapshotTaken{Through: 100, Link: before},
	} {
		raw, err := json.Marshal(tutti.Event{Body: body})
		if err != nil {
			t.Fatal(err)
		}
		link = tutti.Link(link, raw)
		want = append(want, tutti.Entry{Seq: []uint64{101, 104, 105}[i], Raw: raw, Link: link})
	}
	r, err := natsbus.RestoreLog(t.Context(), conn, 100, before)
	if err != nil {
		t.Fatal(err)
	}
	altered := want[0]
	altered.Raw = []byte(`{}`)
	if err := r.Add(t.Context(), altered); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("an entry that was altered: %v", err)
	}
	for _, e := range want {
		if err := r.Add(t.Context(), e); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		log := openLog(t, bus)
		var got []tutti.Entry
		for e, err := range log.Entries(t.Context(), 100) {
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, e)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("the restored log is another one: -want +got\n%s", diff)
		}
		last := got[len(got)-1]
		events := []tutti.Event{{Body: &tutti.ValueUnset{Key: "a"}}}
		seq, err := log.Append(t.Context(), last.Seq, events)
		if err != nil || seq != last.Seq+1 {
			t.Fatalf("appended as %d, %v", seq, err)
		}
		raw, err := json.Marshal(tutti.Event{Body: events[0].Body})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, tutti.Entry{Seq: seq, Raw: raw, Link: tutti.Link(last.Link, raw)})
	}
	if _, err := natsbus.RestoreLog(t.Context(), conn, 0, ""); err == nil {
		t.Error("a log that is there was made anew")
	}
}
