package tutti_test

import (
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

func TestWhatARunMayWaitFor(t *testing.T) {
	value := tutti.Wait{Query: tutti.Query{Kind: tutti.QueryValue, Key: "k"}}
	for _, tc := range []struct {
		reason string
		waits  []tutti.Wait
		says   string
	}{
		{"nothing", nil, ""},
		{"a value", []tutti.Wait{value}, ""},
		{"a hiera key", []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryHiera, Key: "k"}}}, ""},
		{"the hiera level", []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryHiera}}}, ""},
		{"exports", []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryCollect, Type: "Sshkey"}}}, ""},
		{"as many as there is room for", make20(value), ""},
		{"one more", append(make20(value), value), "waits for 21 questions"},
		{"no value", []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue}}}, "cannot wait"},
		{"exports of no type", []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryCollect}}}, "cannot wait"},
		{"what it published itself", []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryPublished, Key: "k"}}}, "cannot wait"},
		{"nobody knows what", []tutti.Wait{{}}, "cannot wait"},
		{"a book", []tutti.Wait{{Query: value.Query, At: tutti.Place{File: strings.Repeat("x", 9<<10)}}}, "with 9217 bytes"},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			now := time.Now()
			err := tutti.Result{Run: "00000000-0000-4000-8000-000000000001", Outcome: tutti.Waiting, Waits: tc.waits, StartedAt: now, EndedAt: now}.Validate()
			if (err == nil) != (tc.says == "") || err != nil && (tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%v, want %q", err, tc.says)
			}
			if room := tutti.RoomForWaits(tc.waits); tc.says == "" && len(room) != len(tc.waits) {
				t.Errorf("room for %d of %d", len(room), len(tc.waits))
			}
		})
	}
}

func make20(w tutti.Wait) []tutti.Wait {
	out := make([]tutti.Wait, tutti.MaxFailures)
	for i := range out {
		out[i] = w
	}
	return out
}
