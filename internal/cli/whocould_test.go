package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// The type `trail` is a server with the given events in its audit trail.
type trail struct {
	Server
	events []tutti.Event
}

func (s trail) ReadAudit(_ context.Context, _ api.ReadAudit, f func(api.AuditEntry) error) error {
	for _, e := range s.events {
		raw, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if err := f(api.AuditEntry{Seq: e.Seq, Raw: raw}); err != nil {
			return err
		}
	}
	return nil
}

// TestWhoCouldAtATime asks who could run Puppet on a node at some time. The audit trail has two fleet files. The
// test asks about times before, between and after the two fleet files. The answer depends on the groups of the
// node, the access section and the certificates at that time.
func TestWhoCouldAtATime(t *testing.T) {
	day := func(n int) time.Time { return time.Date(2026, 7, n, 12, 0, 0, 0, time.UTC) }
	file := func(group tutti.GroupName, access ...tutti.Access) *tutti.FleetSet {
		return &tutti.FleetSet{Fleet: tutti.Fleet{Name: "shop", Groups: []tutti.Group{{Name: group, Nodes: []tutti.NodeName{"web-01"}}, {Name: "joined"}}, Access: access}}
	}
	may := func(name string, group tutti.GroupName) tutti.Access {
		return tutti.Access{To: []string{name}, May: []tutti.Verb{tutti.VerbRun}, Groups: []tutti.GroupName{group}}
	}
	s := trail{}
	for _, e := range []tutti.Event{
		{At: day(1), Body: &tutti.OperatorIssued{Operator: "ada", Serial: "1", Expires: day(30)}},
		{At: day(1), Body: &tutti.OperatorIssued{Operator: "grace", Serial: "2", Expires: day(30)}},
		{At: day(1), Body: &tutti.OperatorIssued{Operator: "short", Serial: "3", Expires: day(5)}},
		{At: day(2), Body: &tutti.NodeEnrolled{Node: "web-01", Groups: []tutti.GroupName{"joined"}}},
		{At: day(3), Body: file("front", may("ada", "front"), may("grace", "back"), may("short", "joined"))},
		{At: day(7), Body: file("back", may("ada", "front"), may("grace", "back"), may("short", "joined"))},
		{At: day(9), Body: &tutti.NodeRemoved{Node: "web-01"}},
	} {
		e.Seq, e.By = uint64(len(s.events)+1), "server"
		s.events = append(s.events, e)
	}
	for _, tt := range []struct {
		reason, at string
		want       []string
		code       int
	}{
		{"the node had not joined", "2026-07-02T11:59:59Z", nil, ExitInvalid},
		{"there was no fleet file", "2026-07-02T12:00:00Z", []string{"ada", "grace", "short"}, ExitOK},
		{"the first file lists it in front", "2026-07-04T00:00:00Z", []string{"ada", "short"}, ExitOK},
		{"a certificate had ended before the second file", "2026-07-06T00:00:00Z", []string{"ada"}, ExitOK},
		{"one second before the second file", "2026-07-07T11:59:59Z", []string{"ada"}, ExitOK},
		{"the second file lists it in back", "2026-07-07T12:00:00Z", []string{"grace"}, ExitOK},
		{"the node was removed", "2026-07-10T00:00:00Z", nil, ExitInvalid},
	} {
		root := NewRoot(Deps{Connect: func(Connection) (Server, error) { return s, nil }})
		root.SetArgs([]string{"audit", "who-could", "run", "web-01", "--at", tt.at, "--json"})
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetErr(&out)
		if code := ExitCode(root.ExecuteContext(t.Context())); code != tt.code {
			t.Errorf("%s: exit code %d, want %d: %s", tt.reason, code, tt.code, &out)
		}
		var got []struct{ Operator string }
		if tt.code == ExitOK {
			if err := json.Unmarshal(out.Bytes(), &got); err != nil {
				t.Fatal(err)
			}
		}
		var names []string
		for _, r := range got {
			names = append(names, r.Operator)
		}
		if diff := cmp.Diff(tt.want, names); diff != "" {
			t.Errorf("%s, at %s: -want +got\n%s", tt.reason, tt.at, diff)
		}
	}
}
