package report_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/report"
)

// changed returns a report with one changed resource.
func changed(resource, old, now string, change ...func(*api.ReportStatus)) api.Report {
	st := api.ReportStatus{
		Resource: resource, Outcome: api.ResourceChanged, Place: tutti.Place{File: "/x.pp", Line: 3},
		Events: []api.ResourceEvent{{Property: "mode", Status: "success", Message: "it changed", Old: old, New: now}},
	}
	for _, c := range change {
		c(&st)
	}
	return api.Report{Resources: []api.ReportStatus{st}}
}

func corrective(st *api.ReportStatus) { st.Events[0].Corrective = true }

func failed(message string) func(*api.ReportStatus) {
	return func(st *api.ReportStatus) {
		st.Outcome, st.Events[0].Status, st.Events[0].Message = api.ResourceFailed, "failure", message
	}
}

func bare(st *api.ReportStatus) {
	st.Outcome, st.Message, st.Events = api.ResourceFailed, "no provider", nil
}

func TestSame(t *testing.T) {
	type found struct {
		What  string
		Nodes []tutti.NodeName
	}
	for _, tc := range []struct {
		reason  string
		reports []api.Report // reports of the nodes a, b, c, …
		want    []found
	}{
		{"the same change on many nodes is one", []api.Report{changed("File[/x]", "1", "2"), changed("File[/x]", "1", "2"), changed("File[/x]", "1", "2")},
			[]found{{"changed File[/x] mode 1 2", []tutti.NodeName{"a", "b", "c"}}}},
		{"another old or new value, another resource is another", []api.Report{changed("File[/x]", "1", "2"), changed("File[/x]", "0", "2"), changed("File[/x]", "1", "3"), changed("File[/y]", "1", "2")},
			[]found{{"changed File[/x] mode 0 2", []tutti.NodeName{"b"}}, {"changed File[/x] mode 1 2", []tutti.NodeName{"a"}},
				{"changed File[/x] mode 1 3", []tutti.NodeName{"c"}}, {"changed File[/y] mode 1 2", []tutti.NodeName{"d"}}}},
		{"a correction is none that somebody wanted", []api.Report{changed("File[/x]", "1", "2", corrective), changed("File[/x]", "1", "2")},
			[]found{{"changed File[/x] mode 1 2 corrective", []tutti.NodeName{"a"}}, {"changed File[/x] mode 1 2", []tutti.NodeName{"b"}}}},
		{"failures come first, told apart by what they say", []api.Report{changed("File[/x]", "1", "2"), changed("File[/x]", "1", "2"),
			changed("File[/x]", "1", "2", failed("disk full")), changed("File[/x]", "9", "2", failed("disk full")), changed("File[/x]", "1", "2", failed("no such user"))},
			[]found{{"failed File[/x]   disk full", []tutti.NodeName{"c", "d"}}, {"failed File[/x]   no such user", []tutti.NodeName{"e"}},
				{"changed File[/x] mode 1 2", []tutti.NodeName{"a", "b"}}}},
		{"a failure without an event says what the log says", []api.Report{changed("File[/x]", "1", "2", bare)},
			[]found{{"failed File[/x]   no provider", []tutti.NodeName{"a"}}}},
		{"a refresh has no values but says what it was", []api.Report{changed("Exec[x]", "", "")}, []found{{"changed Exec[x] mode  it changed", []tutti.NodeName{"a"}}}},
	} {
		var same report.Same
		for i, r := range tc.reports {
			same.Add(tutti.NodeName(rune('a'+i)), r)
		}
		changes, leftOut := same.Changes()
		var got []found
		for _, c := range changes {
			what := fmt.Sprintf("%s %s %s %s %s%s", c.Outcome, c.Resource, c.Property, c.Old, c.New, c.Message)
			if c.Corrective {
				what += " corrective"
			}
			got = append(got, found{what, c.Nodes})
		}
		if diff := cmp.Diff(tc.want, got); diff != "" || leftOut != 0 {
			t.Errorf("%s: %d left out, -want +got\n%s", tc.reason, leftOut, diff)
		}
	}
}

// Reports of real nodes are collected. At most a thousand changes are listed separately, no matter how many there are.
func TestSameBounded(t *testing.T) {
	var same report.Same
	for _, node := range []tutti.NodeName{"a", "b"} {
		same.Add(node, parse(t, "8.10.0", "second"))
	}
	changes, _ := same.Changes()
	for _, c := range changes {
		if len(c.Nodes) != 2 {
			t.Errorf("%+v: want it on both", c)
		}
	}
	if len(changes) != 6 || changes[0].Outcome != api.ResourceFailed || changes[5].Outcome != api.ResourceOutOfSync {
		t.Errorf("%d changes, %+v", len(changes), changes)
	}
	for i := range 1500 {
		same.Add("c", changed(fmt.Sprintf("File[%d]", i), "1", "2"))
	}
	changes, leftOut := same.Changes()
	if len(changes) != 1000 || leftOut != 506 {
		t.Errorf("%d changes, %d left out", len(changes), leftOut)
	}
}
