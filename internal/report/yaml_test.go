package report_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/report"
)

// foreign is a directory with reports that Puppet 7.23 and 8.10 left in lastrunreport.
const foreign = "../../puppet/testdata/foreign"

func readForeign(t testing.TB, version, name string) []byte {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join(foreign, version, name+".yaml"))
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

func TestFromYAML(t *testing.T) {
	for _, version := range versions {
		raw, err := report.FromYAML(readForeign(t, version, "failed"))
		if err != nil {
			t.Fatal(err)
		}
		got, err := report.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		var failed []string
		for _, r := range got.Resources {
			if r.Outcome == api.ResourceFailed {
				failed = append(failed, fmt.Sprintf("%s %s:%d %s", r.Resource, r.Place.File, r.Place.Line, r.Events[0].Message))
			}
		}
		want := []string{"Exec[/bin/false] /tmp/foreign/site.pp:3 change from 'notrun' to ['0'] failed: '/bin/false' returned 1 instead of one of [0]"}
		if diff := cmp.Diff(want, failed); diff != "" || got.Status != "failed" || got.Puppet != version || got.Environment != "production" || got.At.IsZero() {
			t.Errorf("%s: %+v\n-want +got\n%s", version, got, diff)
		}
		if c := got.Counts; c.Total != 11 || c.Changed != 2 || c.Failed != 1 || c.Skipped != 1 {
			t.Errorf("%s: %+v", version, c)
		}
		lines := 0
		if err := report.Logged(raw, func(api.LogLine) error { lines++; return nil }); err != nil || lines != 8 {
			t.Errorf("%s: %d messages, %v", version, lines, err)
		}
	}
}

// aReport returns a complete report that contains this value.
func aReport(value string) string {
	return "--- !ruby/object:Puppet::Transaction::Report\nhost: a\ntime: '2026-01-02T03:04:05Z'\ntransaction_uuid: u\nstatus: changed\n" +
		"logs: []\nmetrics: {}\nresource_statuses: {}\ncorrective_change: false\nvalue: " + value + "\n"
}

func TestFromYAMLValues(t *testing.T) {
	for _, tc := range []struct{ reason, value, want string }{
		{"a symbol is text", ":sym", `":sym"`},
		{"a tag of Ruby's makes nothing", "!ruby/object:Kernel {a: 1}", `{"a":1}`},
		{"a tagged scalar is text", "!ruby/sym notice", `"notice"`},
		{"a time that is not quoted is text", "2026-01-02 03:04:05.123 +00:00", `"2026-01-02 03:04:05.123 +00:00"`},
		{"nothing", "", "null"},
		{"numbers", "[1, -2, 0.5, 1e3]", `[1,-2,0.5,1000]`},
		{"no number that JSON has", "[.inf, .nan]", `[".inf",".nan"]`},
		{"true and false", "[true, FALSE]", "[true,false]"},
		{"text that looks like a number", "'007'", `"007"`},
		{"an alias", "{a: &x [1], b: *x}", `{"a":[1],"b":[1]}`},
	} {
		raw, err := report.FromYAML([]byte(aReport(tc.value)))
		if err != nil {
			t.Errorf("%s: %v", tc.reason, err)
			continue
		}
		var got struct{ Value json.RawMessage }
		if err := json.Unmarshal(raw, &got); err != nil || string(got.Value) != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.reason, got.Value, err, tc.want)
		}
	}
}

// bomb returns a short text that aliases expand to a very large one.
func bomb() string {
	var b strings.Builder
	b.WriteString("\n  a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol]\n")
	for i := 1; i < 8; i++ { // 290 MB
		fmt.Fprintf(&b, "  a%d: &a%d [%s]\n", i, i, strings.TrimSuffix(strings.Repeat(fmt.Sprintf("*a%d, ", i-1), 9), ", "))
	}
	return b.String()
}

func TestFromYAMLRefuses(t *testing.T) {
	whole := string(readForeign(t, "8.10.0", "changed"))
	until := func(what string) string { head, _, _ := strings.Cut(whole, what); return head }
	for _, tc := range []struct{ reason, raw, says string }{
		{"nothing", "", "no report of Puppet"},
		{"no YAML", "a: [", "no YAML"},
		{"JSON of something else", "[1]", "no report of Puppet"},
		{"cut off between two lines", until("resource_statuses:"), "it has no resource_statuses"},
		{"cut off before its end", until("\ncorrective_change:"), "it has no corrective_change"},
		{"too large", strings.Repeat("#", report.MaxYAML+1), "at most"},
		{"an alias bomb", aReport(bomb()), "its aliases make it too large"},
		{"an alias inside of itself", aReport("&a [*a]"), "nested too deeply"},
		{"nested", aReport(strings.Repeat("[", 60) + strings.Repeat("]", 60)), "nested too deeply"},
		{"a key that is a list", aReport("{[1]: 2}"), "a key is not text"},
	} {
		_, err := report.FromYAML([]byte(tc.raw))
		if tutti.CodeOf(err) != tutti.CodeInvalid || !strings.Contains(fmt.Sprint(err), tc.says) {
			t.Errorf("%s: %v, want %q", tc.reason, err, tc.says)
		}
	}
}

// FuzzForeign checks that any file at the place of Puppet's report is converted to JSON of a limited size, or refused.
func FuzzForeign(f *testing.F) {
	for _, version := range versions {
		for seed := range uint64(3) {
			f.Add(readForeign(f, version, "failed"), seed)
		}
	}
	f.Add([]byte(aReport("{a: &a [1], b: *a}")), uint64(0))
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		if seed > 0 {
			raw = hostile.Mangle(raw, seed)
		}
		out, err := report.FromYAML(raw)
		if err != nil {
			if tutti.CodeOf(err) != tutti.CodeInvalid || len(err.Error()) > tutti.MaxErrorText {
				t.Errorf("code %q of %.200v", tutti.CodeOf(err), err)
			}
			return
		}
		if !json.Valid(out) || len(out) > 20<<20 {
			t.Errorf("%d bytes, of %d", len(out), len(raw))
		}
	})
}
