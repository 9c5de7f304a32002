package report_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/report"
)

// FuzzReport checks reports with any content. Each report is refused with a code, or the
// result has correct sums, a limited size and no control characters.
func FuzzReport(f *testing.F) {
	for _, pattern := range []string{reports + "/*/*.json", "../../puppet/testdata/runs/*/failed-resources/report.json"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			f.Fatal(pattern, err)
		}
		for _, file := range files {
			raw, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			for seed := range uint64(5) {
				f.Add(raw, seed)
			}
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		raw = hostile.Mangle(raw, seed)
		r, err := report.Parse(raw)
		if err != nil {
			if tutti.CodeOf(err) != tutti.CodeInvalid || len(err.Error()) > tutti.MaxErrorText {
				t.Errorf("code %q of %.200v", tutti.CodeOf(err), err)
			}
			return
		}
		if c := r.Counts; c.Failed+c.Skipped+c.Changed+c.OutOfSync+c.Unchanged != c.Total || c.Unchanged < 0 {
			t.Errorf("it does not add up: %+v", c)
		}
		out, err := json.Marshal(r)
		if err != nil || len(out) > 64<<20 {
			t.Fatalf("%d bytes, %v", len(out), err)
		}
		fit(t, r)
		for _, st := range r.Resources[:min(len(r.Resources), 3)] {
			if _, _, err := report.Find(raw, st.Resource); err != nil {
				t.Errorf("%q is not found again: %v", st.Resource, err)
			}
		}
		var same report.Same
		same.Add("a", r)
		same.Add("b", r)
		changes, leftOut := same.Changes()
		for _, c := range changes {
			if !slices.Equal(c.Nodes, []tutti.NodeName{"a", "b"}) && leftOut == 0 {
				t.Errorf("%+v: want it on both", c)
			}
		}
	})
}

// FuzzLog checks that a log of any bytes is read to its end.
func FuzzLog(f *testing.F) {
	for _, version := range versions {
		raw := read(f, version, "second.jsonl")
		for seed := range uint64(10) {
			f.Add(raw, seed)
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed uint64) {
		lines := bytes.SplitAfter(raw, []byte("\n"))
		i := int(seed % uint64(len(lines)))
		lines[i] = append(slices.Clone(hostile.Mangle(bytes.TrimSpace(lines[i]), seed)), '\n')
		n := 0
		err := report.Log(bytes.Join(lines, nil), func(l api.LogLine) error {
			n++
			plain(t, l.Level, l.Message, l.Source, l.File)
			_, err := json.Marshal(l)
			return err
		})
		if err != nil || n > len(raw)+8<<10 {
			t.Errorf("%d messages of %d bytes, %v", n, len(raw), err)
		}
	})
}

// The function `fit` checks that all texts of a report are plain.
func fit(t *testing.T, r api.Report) {
	t.Helper()
	plain(t, r.Puppet, r.Status, r.Environment, r.Version)
	for _, st := range r.Resources {
		plain(t, st.Resource, st.Outcome, st.Message, st.Place.File)
		plain(t, slices.Concat(st.Containers, st.FailedDependencies)...)
		for _, e := range st.Events {
			plain(t, e.Property, e.Status, e.Message, e.Old, e.New)
			if hidden := []string{"", api.Redacted}; e.Redacted && (!slices.Contains(hidden, e.Old) || !slices.Contains(hidden, e.New)) {
				t.Errorf("a Sensitive value: %q, %q", e.Old, e.New)
			}
		}
	}
	for _, times := range [][]api.ReportTime{r.Times, r.Slowest} {
		for _, time := range times {
			plain(t, time.Name)
		}
	}
}

func plain(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		bad := func(r rune) bool {
			return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
		}
		if strings.ContainsFunc(text, bad) || !utf8.ValidString(text) || len(text) > 13<<10 {
			t.Errorf("%d bytes: %.100q", len(text), text)
		}
	}
}
