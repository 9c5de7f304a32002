package report_test

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/report"
)

var update = flag.Bool("update", false, "write the golden files")

// reports is a directory with reports of real runs of Puppet 7.23 and 8.10, see puppet/spec/record_reports.rb.
const reports = "../../puppet/testdata/reports"

var versions = []string{"7.23.0", "8.10.0"}

func read(t testing.TB, parts ...string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(append([]string{reports}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func parse(t testing.TB, version, name string) api.Report {
	t.Helper()
	r, err := report.Parse(read(t, version, name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// golden compares a value with a file in testdata.
func golden(t *testing.T, name string, got any) {
	t.Helper()
	raw, err := json.MarshalIndent(got, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, append(raw, '\n'), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(raw)+"\n"); diff != "" {
		t.Errorf("%s: -want +got\n%s", name, diff)
	}
}

// The result has everything that Puppet wrote, for both versions.
func TestParse(t *testing.T) {
	for _, version := range versions {
		for _, name := range []string{"first", "second", "noop"} {
			golden(t, version+"-"+name+".json", parse(t, version, name))
		}
	}
}

// Parse can read the report of a run for each way in which a run can end.
func TestParseEndings(t *testing.T) {
	files, err := filepath.Glob("../../puppet/testdata/runs/*/*/report.json")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d reports, %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		r, err := report.Parse(raw)
		if c := r.Counts; err != nil || c.Failed+c.Skipped+c.Changed+c.OutOfSync+c.Unchanged != c.Total || c.Unchanged < 0 {
			t.Errorf("%s: %+v, %v", file, c, err)
		}
	}
}

// Values that Puppet marked Sensitive are in no report and no log, and so they are in no
// result. If a type writes a Sensitive value as plain text, the value must also be
// removed.
func TestSensitive(t *testing.T) {
	const secret = "hunter2"
	for _, version := range versions {
		for _, name := range []string{"first", "second", "noop"} {
			raw := read(t, version, name+".json")
			if strings.Contains(string(raw)+string(read(t, version, name+".jsonl")), secret) {
				t.Errorf("%s %s: Puppet wrote the secret", version, name)
			}
			st, found, err := report.Find(raw, "File[/srv/web/secret]")
			if err != nil || !found || len(st.Events) != 1 || !st.Events[0].Redacted || st.Events[0].Old != api.Redacted || st.Events[0].New != api.Redacted {
				t.Errorf("%s %s: %+v, %v", version, name, st, err)
			}
			leaked := strings.ReplaceAll(string(raw), "[redacted]", secret)
			r, err := report.Parse([]byte(leaked))
			out, _ := json.Marshal(r)
			if err != nil || strings.Contains(string(out), secret) {
				t.Errorf("%s %s: the secret of a type that leaks it is in %s, %v", version, name, out, err)
			}
		}
	}
}

// No text of a report can send control characters to a terminal.
func TestNoControlCharacters(t *testing.T) {
	for _, version := range versions {
		r := parse(t, version, "first")
		st, found, err := report.Find(read(t, version, "first.json"), "Notify[\x1b[31mred]")
		if err != nil || !found || st.Resource != "Notify[\uFFFD[31mred]" || st.Events[0].New != "\uFFFD[31mred" {
			t.Errorf("%q, %v: a title that colours", st.Resource, err)
		}
		err = report.Log(read(t, version, "first.jsonl"), func(l api.LogLine) error {
			r.Resources = append(r.Resources, api.ReportStatus{Resource: l.Message + l.Source})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range r.Resources {
			if strings.Contains(st.Resource, "\x1b") {
				t.Errorf("%s: %q", version, st.Resource)
			}
		}
	}
}

func TestRefused(t *testing.T) {
	for _, tc := range []struct{ reason, text, says string }{
		{"nothing", ``, "EOF"},
		{"no object", `[]`, "does not begin with {"},
		{"half of one", `{"status": "changed"`, "EOF"},
		{"more than one", `{}{}`, "more after the end"},
		{"statuses twice, of which one would win", `{"resource_statuses": {}, "resource_statuses": {}}`, "twice"},
		{"a status that is none", `{"resource_statuses": {"File[x]": 1}}`, "File[x]"},
		{"an event that is none", `{"resource_statuses": {"File[x]": {"events": [1]}}}`, "an event"},
		{"a time that is none", `{"time": "yesterday"}`, "time"},
		{"a number that is too large", `{"resource_statuses": {"File[x]": {"evaluation_time": 1e400}}}`, "evaluation_time"},
		{"a metric without a number", `{"metrics": {"time": {"values": [["total"]]}}}`, "metric"},
		{"one resource of megabytes", `{"resource_statuses": {"File[x]": {"file": "` + strings.Repeat("x", 3<<20) + `"}}}`, "at most"},
	} {
		if _, err := report.Parse([]byte(tc.text)); tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want invalid and %q", tc.reason, err, tc.says)
		}
	}
}

// A report of any size is read with limited memory. Parts above the limits are counted, and
// failures have their own limit.
func TestBounded(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"resource_statuses": {`)
	for i := range 3000 {
		what := "changed"
		if i >= 2900 { // after all other resources
			what = "failed"
		}
		fmtStatus(&b, i, what)
	}
	b.WriteString(`"File[last]": {}}}`)
	r, err := report.Parse([]byte(b.String()))
	want := api.ReportCounts{Failed: 100, Changed: 2900, Unchanged: 1, Total: 3001}
	if err != nil || r.Counts != want || len(r.Resources) != report.MaxResources+100 || r.LeftOut != 2900-report.MaxResources {
		t.Errorf("%+v, %d kept, %d left out, %v", r.Counts, len(r.Resources), r.LeftOut, err)
	}
	large := `{"resource_statuses": {`
	for _, name := range []string{"a", "b", "c"} {
		large += `"` + name + `": {"changed": true, "containment_path": [` + strings.Repeat(`"`+strings.Repeat("x", 5000)+`",`, 200) + `"x"]},`
	}
	r, err = report.Parse([]byte(large + `"d": {"changed": true}}}`))
	out, _ := json.Marshal(r)
	if err != nil || r.Counts.Changed != 4 || len(out) > 1<<20 {
		t.Errorf("%+v, %d bytes, %v", r.Counts, len(out), err)
	}
}

func fmtStatus(b *strings.Builder, i int, what string) {
	name, _ := json.Marshal("File[/" + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + "]" + strings.Repeat("y", i/182))
	b.WriteString(string(name) + `: {"` + what + `": true, "line": 1},`)
}

func TestLog(t *testing.T) {
	raw := "{\"t\":\"2026-01-02T03:04:05.6Z\",\"level\":\"err\",\"message\":\"a\\u001b\",\"source\":\"Puppet\",\"file\":\"/x.pp\",\"line\":3}\n\nno\nnot this\n{\"level\":\"notice\"}\n{\"level\""
	var got []string
	err := report.Log([]byte(raw), func(l api.LogLine) error {
		got = append(got, strings.Join([]string{l.Level, l.Message, l.Source, l.File}, "|"))
		return nil
	})
	want := []string{"err|a\uFFFD|Puppet|/x.pp", "warning|this line of the log cannot be read|tutti|", "notice|||", "warning|this line of the log cannot be read|tutti|"}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v, -want +got\n%s", err, diff)
	}
	lines := 0
	if err := report.Logged(read(t, "8.10.0", "second.json"), func(api.LogLine) error { lines++; return nil }); err != nil || lines != 13 {
		t.Errorf("%d messages in a report, %v", lines, err)
	}
}
