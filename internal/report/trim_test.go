package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/report"
)

func TestTrim(t *testing.T) {
	for in, want := range map[string]string{
		`{}`:                                   `{}`,
		` { "a" : 1.5 , "b":{"logs":["x"]} } `: `{"a":1.5,"b":{"logs":["x"]}}`,
		`{"logs":[{"m":"]}\"[\\"},[1]],"z":"a \\"}`: `{"logs":[],"z":"a \\"}`,
		`{"z":null,"logs":"none"}`:                  `{"z":null,"logs":[]}`,
		`{"not logs":[1],"logs":[1]}`:               `{"not logs":[1],"logs":[]}`,
	} {
		got, err := report.Trim(strings.NewReader(in), 100)
		if diff := cmp.Diff(want, string(got)); diff != "" || err != nil {
			t.Errorf("%s: %v: -want +got\n%s", in, err, diff)
		}
	}
	for _, in := range []string{``, `[]`, `{"a":`, `{"a":"x`, `{"a":"` + strings.Repeat("x", 100) + `"}`, `{"logs":[1`} {
		if got, err := report.Trim(strings.NewReader(in), 100); tutti.CodeOf(err) != tutti.CodeDamaged {
			t.Errorf("%.20s: %s, %v, want damaged", in, got, err)
		}
	}
}

// In the copies of real reports only the messages are missing.
func TestTrimRealReports(t *testing.T) {
	files, err := filepath.Glob("../../puppet/testdata/runs/*/*/report.json")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		trimmed, err := report.Trim(bytes.NewReader(raw), report.Max)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		var want, got map[string]any
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(trimmed, &got); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		want["logs"] = []any{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", file, diff)
		}
	}
}
