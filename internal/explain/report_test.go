package explain

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/memory"
)

// One call reads a limited number of reports and bytes, no matter how many runs a job has. The call reads reports of
// failed runs first, and no reports of runs without a change. The answer says which reports the call did not read.
func TestAJobsReportsAreBounded(t *testing.T) {
	blobs := memory.NewBlobs()
	var runs []api.RunReport
	add := func(node tutti.NodeName, outcome tutti.Outcome, pending bool) {
		raw := fmt.Appendf(nil, `{"resource_statuses": {"File[x]": {"changed": true, "events": [{"property": "mode", "status": "success", "desired_value": %q}]}}}`, node)
		digest, err := blobs.Put(t.Context(), raw)
		if err != nil {
			t.Fatal(err)
		}
		r := api.RunReport{RunView: api.RunView{Node: node, Outcome: outcome}, Result: &tutti.Result{Report: digest, NoopPending: pending}}
		runs = append(runs, r)
	}
	add("same", tutti.Unchanged, false)
	add("a", tutti.Changed, false)
	add("b", tutti.Unchanged, true)
	add("c", tutti.Failed, false)
	for _, tc := range []struct {
		reason         string
		reports, bytes int
		read           string
		unread         []tutti.NodeName
	}{
		{"there is room for all", 10, 1 << 20, "abc", nil},
		{"the failed one first", 1, 1 << 20, "c", []tutti.NodeName{"a", "b"}},
		{"no more bytes, but for the one that was begun", 10, 150, "ac", []tutti.NodeName{"b"}},
	} {
		rd := New(nil, nil, blobs)
		rd.most = toRead{tc.reports, tc.bytes}
		var got api.JobChanges
		err := rd.fillChanges(t.Context(), runs, &got)
		read := ""
		for _, c := range got.Changes {
			read += c.New
		}
		var unread []tutti.NodeName
		for _, u := range got.Unread {
			unread = append(unread, u.Nodes...)
		}
		if err != nil || read != tc.read || got.Read != len(tc.read) || !cmp.Equal(unread, tc.unread) {
			t.Errorf("%s: read %q (%d), not %v, %v; want %q, not %v", tc.reason, read, got.Read, unread, err, tc.read, tc.unread)
		}
	}
}
