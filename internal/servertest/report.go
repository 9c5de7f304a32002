package servertest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

const reportFleet = `
fleet: report
environment: {name: production, path: ./code}
groups: {web: {nodes: [web-01, web-02, web-03, web-04, web-05]}}
plans:
  deploy:
    steps: [{run: web}]
`

// hostileReport is a report with a change of a Sensitive property, a failure, and text with control
// sequences for terminals.
const hostileReport = `{"puppet_version": "8.10.0", "status": "failed", "resource_statuses": {
	"File[/etc/web.conf]": {"file": "/x/web.pp", "line": 7, "changed": true, "out_of_sync": true, "corrective_change": true, "evaluation_time": 0.5,
		"containment_path": ["Stage[main]", "Web", "File[/etc/web.conf]"],
		"events": [{"property": "mode", "status": "success", "previous_value": "0644", "desired_value": "0600", "corrective_change": true}]},
	"File[/etc/secret]": {"changed": true,
		"events": [{"property": "content", "status": "success", "message": "hunter1 to hunter2", "previous_value": "hunter1", "desired_value": "hunter2", "redacted": true}]},
	"Exec[boom]": {"failed": true, "events": [{"status": "failure", "message": "\u001b[2Jno disk"}]}},
	"metrics": {"resources": {"values": [["total", "Total", 12]]}}}`

const hostileLog = "{\"t\":\"2026-01-02T03:04:05.6Z\",\"level\":\"err\",\"message\":\"no \\u001b[2Jdisk\",\"source\":\"/Stage[main]/Exec[boom]\"}\n{\"level\":\"notice\"}\n"

// The method `sent` claims a run of a node, and ends the run with a report and a log. If the
// report or the log is empty, the method does not send it.
func (n *Node) sent(t *testing.T, r tutti.Result, report, log string) tutti.RunID {
	t.Helper()
	o := n.MustClaim()
	n.Gate(wire.Gate{Run: o.Run})
	r.Run = o.Run
	for text, to := range map[string]*tutti.Digest{report: &r.Report, log: &r.Log} {
		if text == "" {
			continue
		}
		if _, err := n.Fleet.Handle(Operator(), n.Key, wire.OpBlobPut, []byte(text)); err != nil {
			t.Fatal(err)
		}
		*to = tutti.DigestOf([]byte(text))
	}
	n.must(t, wire.OpResult, r, nil)
	return o.Run
}

// TestReports is the contract of api.Reports.
func TestReports(t *testing.T, side Side) {
	f := Start(t)
	server, ctx := side(t, f), Operator()
	var web []*Node
	for i := range 5 {
		web = append(web, f.Join(tutti.NodeName(fmt.Sprintf("web-0%d", i+1))))
	}
	f.Push(reportFleet)
	f.Start("deploy", tutti.ModeApply)
	both := web[0].sent(t, Result("", tutti.Failed), hostileReport, hostileLog)
	web[1].sent(t, Result("", tutti.Failed), hostileReport, "")
	none := Result("", tutti.Failed)
	none.Reason, none.Phase = tutti.BecauseCompile, "compile"
	compile := web[2].sent(t, none, "", "")
	damaged := web[3].sent(t, Result("", tutti.Changed), `{"resource_statuses": 3}`, "")
	going := web[4].MustClaim().Run

	testReport(t, server, both)
	for _, tc := range []struct {
		run  tutti.RunID
		why  api.MissingReport
		says string
	}{
		{compile, api.ReportNotSent, "ended in phase compile"},
		{damaged, api.ReportDamaged, "no report of Puppet"},
		{going, api.ReportRunning, "has not ended: compiling"},
	} {
		got, err := server.RunReport(ctx, string(tc.run))
		if err != nil || got.Run != tc.run || got.Report != nil || got.Missing == nil || got.Missing.Why != tc.why || !strings.Contains(got.Missing.Text, tc.says) {
			t.Errorf("%s: %+v, %+v, %v: want %q, %s", tc.why, got, got.Missing, err, tc.says, tc.why)
		}
	}
	testLogs(t, server, both, compile)
	testChanges(t, server)
	testLatest(t, f, server, both, going)

	for _, tc := range []struct {
		what, run string
		code      tutti.Code
	}{
		{"no run", string(NewRunID()), tutti.CodeNotFound},
		{"a beginning that all ids have", "0000", tutti.CodeConflict},
		{"too few characters of an id", "000", tutti.CodeInvalid},
		{"the end of only one id", string(both)[24:], ""},
		{"nothing", "", tutti.CodeInvalid},
	} {
		_, err := server.RunReport(ctx, tc.run)
		wantCode(t, tc.what, err, tc.code)
	}
	if err := f.Blobs.Delete(ctx, tutti.DigestOf([]byte(hostileReport))); err != nil {
		t.Fatal(err)
	}
	got, err := server.RunReport(ctx, string(both))
	if err != nil || got.Missing == nil || got.Missing.Why != api.ReportNotKept || got.Result == nil {
		t.Errorf("a report that was deleted: %+v, %v", got.Missing, err)
	}
}

// testLatest asks for the latest run of a node, even if the run has not ended. If a word is both
// the name of a node and the end of a run's id, the word means the node.
func testLatest(t *testing.T, f *Fleet, server API, first, going tutti.RunID) {
	t.Helper()
	for name, run := range map[string]tutti.RunID{"web-01": first, "web-05": going} {
		got, err := server.RunReport(Operator(), name)
		want(t, "the latest run of "+name, run, got.Run, err)
	}
	end := string(first)[28:]
	f.Join(tutti.NodeName(end))
	_, err := server.RunReport(Operator(), end)
	wantCode(t, "a node whose name is the end of an id", err, tutti.CodeNotFound)
	if want := "run the node: tutti converge " + end; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("a node that never ran: %v, want %q", err, want)
	}
}

func testReport(t *testing.T, server API, run tutti.RunID) {
	t.Helper()
	got, err := server.RunReport(Operator(), string(run))
	if err != nil || got.Report == nil || got.Missing != nil || got.Node != "web-01" || got.Job != "deploy-1" || got.By != "operator:ada" || got.Outcome != tutti.Failed {
		t.Fatalf("report %+v, %v", got, err)
	}
	want(t, "counts", api.ReportCounts{Failed: 1, Changed: 2, Unchanged: 9, Total: 12, Corrective: 1}, got.Report.Counts, nil)
	want(t, "changed", api.ReportStatus{
		Resource: "File[/etc/web.conf]", Outcome: api.ResourceChanged, Corrective: true, Place: tutti.Place{File: "/x/web.pp", Line: 7},
		Containers: []string{"Class[Web]"}, Seconds: 0.5,
		Events: []api.ResourceEvent{{Property: "mode", Status: "success", Old: "0644", New: "0600", Corrective: true}},
	}, got.Report.Resources[2], nil)
	if text := fmt.Sprintf("%+v", got); strings.Contains(text, "hunter") || strings.Contains(text, "\x1b") {
		t.Errorf("it has a secret or a control sequence: %q", text)
	}
}

func testLogs(t *testing.T, server API, with, without tutti.RunID) {
	t.Helper()
	var got []string
	err := server.RunLog(Operator(), with, func(l api.LogLine) error {
		got = append(got, l.Level+" "+l.Message)
		return nil
	})
	want(t, "log", []string{"err no \uFFFD[2Jdisk", "notice "}, got, err)
	wantCode(t, "no log", server.RunLog(Operator(), without, nil), tutti.CodeNotFound)
	wantCode(t, "log of an unknown run", server.RunLog(Operator(), NewRunID(), nil), tutti.CodeNotFound)
}

func testChanges(t *testing.T, server API) {
	t.Helper()
	got, err := server.JobChanges(Operator(), "")
	two := []tutti.NodeName{"web-01", "web-02"}
	want(t, "changes", []api.SameChange{
		{Resource: "Exec[boom]", Outcome: api.ResourceFailed, Message: "\uFFFD[2Jno disk", Nodes: two},
		{Resource: "File[/etc/secret]", Outcome: api.ResourceChanged, Property: "content", Old: api.Redacted, New: api.Redacted, Redacted: true, Nodes: two},
		{
			Resource: "File[/etc/web.conf]", Outcome: api.ResourceChanged, Property: "mode", Old: "0644", New: "0600", Corrective: true,
			Place: tutti.Place{File: "/x/web.pp", Line: 7}, Nodes: two,
		},
	}, got.Changes, err)
	if got.Job != "deploy-1" || got.Read != 2 || len(got.Unread) != 3 {
		t.Errorf("job %s, %d read, unread %+v", got.Job, got.Read, got.Unread)
	}
	_, err = server.JobChanges(Operator(), "deploy-9")
	wantCode(t, "changes of an unknown job", err, tutti.CodeNotFound)
}
