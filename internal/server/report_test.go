package server_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// TestARecordSpeaksToNoTerminal checks that no control character of a record or a result reaches a
// terminal. A node may lie in every field, and people read records and results.
func TestARecordSpeaksToNoTerminal(t *testing.T) {
	f, _, order := started(t, tutti.ModeApply)
	const bad = "a\x1b[2J\u009b\u202e"
	filter, err := json.Marshal([]string{"=", "tag", "\u009b2J"})
	if err != nil {
		t.Fatal(err)
	}
	place := tutti.Place{Resource: bad, File: bad, Line: 1}
	query := tutti.Query{Kind: tutti.QueryCollect, Type: "T" + bad, Filter: filter}
	raw, err := json.Marshal(tutti.Record{
		Run: bad, Node: bad, Inputs: tutti.Inputs{Code: bad, Mode: bad, Puppet: bad, Module: bad, Facts: bad, Catalog: bad, Sources: bad, Lib: bad},
		Reads: []tutti.Read{{Query: query, Digest: bad, At: place}, {Query: tutti.Query{Kind: bad, Key: bad}}},
		Keys:  []tutti.KeyRead{{Key: bad, At: place}}, Exports: []string{bad}, Published: map[string]tutti.Digest{bad: bad},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Handle(t.Context(), f.db.Key, wire.OpBlobPut, raw); err != nil {
		t.Fatal(err)
	}
	result := servertest.Result(order.Run, tutti.Waiting)
	result.Message, result.Record, result.Waits = bad, tutti.DigestOf(raw), []tutti.Wait{{Query: query, At: place}}
	if err := f.db.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	record, err := f.RunRecord(servertest.Operator(), order.Run)
	if err != nil || len(record.Reads) != 2 || !json.Valid(record.Reads[0].Query.Filter) {
		t.Errorf("record %+v, %v", record, err)
	}
	run, err := f.RunReport(servertest.Operator(), string(order.Run))
	if err != nil || len(run.Result.Waits) != 1 {
		t.Errorf("run %+v, %v", run, err)
	}
	text := fmt.Sprintf("%+v", record) + fmt.Sprintf("%+v %+v %s", *run.Result, run.Missing, run.Result.Waits[0].Query.Filter) + string(record.Reads[0].Query.Filter)
	if strings.ContainsAny(text, "\x1b\u009b\u202e") {
		t.Errorf("it speaks to a terminal: %q", text)
	}
}

// The method `reported` runs a job whose run has a report, a log and a record. If `same` is true, all three are the
// same blob.
func (p *trimming) reported(t *testing.T, same bool) tutti.RunID {
	t.Helper()
	p.Start("deploy", tutti.ModeApply)
	run := p.db.MustClaim().Run
	p.db.Gate(wire.Gate{Run: run})
	result := servertest.Result(run, tutti.Changed)
	for name, to := range map[string]*tutti.Digest{"environment": &result.Report, "message": &result.Log, "node": &result.Record} {
		if same {
			name = "environment"
		}
		raw, err := json.Marshal(map[string]string{name: "of " + string(run)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := p.Handle(t.Context(), p.db.Key, wire.OpBlobPut, raw); err != nil {
			t.Fatal(err)
		}
		*to = tutti.DigestOf(raw)
	}
	if err := p.db.Call(wire.OpResult, result, nil); err != nil {
		t.Fatal(err)
	}
	return run
}

// The method `kept` lists what the server still has of a run: its report, its log, its record.
func (p *trimming) kept(t *testing.T, run tutti.RunID) string {
	t.Helper()
	ctx := servertest.Operator()
	var out []string
	of, err := p.RunReport(ctx, string(run))
	switch {
	case err != nil || of.Result == nil || of.Outcome != tutti.Changed:
		t.Fatalf("run %s: %+v, %v: what became of it is to stay", run, of, err)
	case of.Report != nil:
		out = append(out, "report")
	case of.Missing.Why != api.ReportNotKept:
		t.Errorf("missing %+v", of.Missing)
	}
	err = p.RunLog(ctx, run, func(api.LogLine) error { return nil })
	if err == nil {
		out = append(out, "log")
	} else {
		wantCode(t, err, tutti.CodeNotFound, "is not kept any more")
	}
	if _, err := p.RunRecord(ctx, run); err == nil {
		out = append(out, "record")
	}
	return strings.Join(out, " ")
}

// TestAReportThatIsLost checks that only a report that was dropped on purpose is shown as no longer kept. If the disk
// has lost a report, the server says that the report is lost, and refuses to make a backup (finding F24).
func TestAReportThatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t, func(o *server.Options) { o.Keep.Jobs, o.KeepReports = 10, retain.Reports{Most: 2} })
		ctx := servertest.Operator()
		sweep := func() {
			t.Helper()
			time.Sleep(2 * time.Hour)
			if err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		lose := func(run tutti.RunID) *tutti.Result {
			t.Helper()
			of, err := p.RunReport(ctx, string(run))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range []tutti.Digest{of.Result.Report, of.Result.Log} {
				if err := p.Blobs.Delete(t.Context(), d); err != nil {
					t.Fatal(err)
				}
			}
			return of.Result
		}
		want := func(run tutti.RunID, why api.MissingReport, code tutti.Code, says string) {
			t.Helper()
			of, err := p.RunReport(ctx, string(run))
			if err != nil || of.Missing == nil || of.Missing.Why != why || !strings.Contains(of.Missing.Text, says) {
				t.Errorf("the report: %+v, %v, want %s", of.Missing, err, why)
			}
			wantCode(t, p.RunLog(ctx, run, func(api.LogLine) error { return nil }), code, says)
		}
		first := p.reported(t, false)
		lose(first)
		// The server does not know yet which reports were dropped.
		want(first, api.ReportNotKept, tutti.CodeNotFound, "not kept any more")
		sweep()
		// An older release may have dropped this report.
		want(first, api.ReportNotKept, tutti.CodeNotFound, "not kept any more")
		second := p.reported(t, false)
		lost := lose(second)
		want(second, api.ReportLost, tutti.CodeDamaged, "disk has lost it")
		wantCode(t, p.CopyLog(t.Context(), &copyOf{}), tutti.CodeDamaged, "the report of run "+string(second))
		p.reported(t, false)
		p.reported(t, false)
		sweep()
		// By now the server would have dropped the report in any case.
		want(second, api.ReportNotKept, tutti.CodeNotFound, "not kept any more")
		if err := p.CopyLog(t.Context(), &copyOf{}); err != nil {
			t.Error(err)
		}
		if lost.Report == "" {
			t.Error("the run had no report")
		}

		run, report := foreign(1, tutti.Unchanged)
		mustTell(t, p.db, run, report)
		if err := p.Blobs.Delete(t.Context(), tutti.DigestOf(report)); err != nil {
			t.Fatal(err)
		}
		of, err := p.RunReport(ctx, string(run.Result.Run))
		if err != nil || of.Missing == nil || of.Missing.Why != api.ReportLost {
			t.Errorf("a foreign run: %+v, %v", of.Missing, err)
		}
		p.wantWhole(t)
		p = p.again(t)
		if of, err := p.RunReport(ctx, string(run.Result.Run)); err != nil || of.Missing == nil || of.Missing.Why != api.ReportLost {
			t.Errorf("after a start: %+v, %v", of.Missing, err)
		}
	})
}

// Reports and logs are dropped by age and by number. The outcome and the record of a run stay as long as its job.
func TestReportsAreLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := startPast(t, func(o *server.Options) {
			o.Keep.Jobs, o.KeepReports = 10, retain.Reports{Most: 2, For: 24 * time.Hour}
		})
		var runs []tutti.RunID
		sweep := func(want ...string) {
			t.Helper()
			time.Sleep(2 * time.Hour) // longer than the time in which new content is protected
			if err := p.Sweep(t.Context()); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, run := range runs {
				got = append(got, p.kept(t, run))
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("kept: -want +got\n%s", diff)
			}
		}
		runs = append(runs, p.reported(t, false))
		sweep("report log record")
		runs = append(runs, p.reported(t, true), p.reported(t, false))
		sweep("record", "report log record", "report log record")
		time.Sleep(20 * time.Hour)
		sweep("record", "report log record", "report log record")
		time.Sleep(2 * time.Hour)
		sweep("record", "report log record", "record") // all three parts of the second run are the same blob as its record
		p.wantWhole(t)
	})
}
