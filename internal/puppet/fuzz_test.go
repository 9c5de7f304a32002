package puppet_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/puppet"
)

// damageable are the files of a run that determine its outcome.
var damageable = []string{puppet.ReportFile, "phase.jsonl", puppet.LogFile, "stderr", "events.jsonl"}

// FuzzJudge damages one file of a real run. Damage must not turn a bad outcome into a
// good one. A good run must not get another good outcome. The server must accept the
// agent's result.
//
// Found: ended-before-it-started (a damaged file of phases made a result that the
// server refuses).
func FuzzJudge(f *testing.F) {
	runs, err := filepath.Glob(filepath.Join(samples, "*", "*"))
	if err != nil || len(runs) != 2*len(endings) {
		f.Fatalf("%d samples, %v", len(runs), err)
	}
	for i, dir := range runs {
		for k, name := range damageable {
			content, err := os.ReadFile(filepath.Join(dir, name))
			if err == nil {
				f.Add(uint8(i), uint8(k), content, uint64(0))
				f.Add(uint8(i), uint8(k), content, uint64(i+1))
			}
		}
	}
	f.Fuzz(func(t *testing.T, run, file uint8, content []byte, seed uint64) {
		sample, name := runs[int(run)%len(runs)], damageable[int(file)%len(damageable)]
		dir, want := t.TempDir(), endings[filepath.Base(sample)]
		for _, other := range damageable {
			raw, err := os.ReadFile(filepath.Join(sample, other))
			if other == name {
				raw, err = mangleLine(content, seed), nil
			}
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, other), raw, 0o600)
			}
			if err != nil && !os.IsNotExist(err) {
				t.Fatal(err)
			}
		}
		got := puppet.Judge(dir, runOf(t, sample))
		if got.Outcome.Good() && got.Outcome != want.Outcome {
			t.Errorf("%s with a damaged %s ended %s, not %s", sample, name, got.Outcome, want.Outcome)
		}
		checkResult(t, got)
		checkFollowed(t, dir, runOf(t, sample))
	})
}

// mangleLine mangles one line of a file.
func mangleLine(content []byte, seed uint64) []byte {
	lines := bytes.SplitAfter(content, []byte("\n"))
	i := int(seed % uint64(len(lines)))
	line, end := bytes.CutSuffix(lines[i], []byte("\n"))
	lines[i] = slices.Clone(hostile.Mangle(line, seed))
	if end {
		lines[i] = append(lines[i], '\n')
	}
	return bytes.Join(lines, nil)
}

func checkResult(t *testing.T, r tutti.Result) {
	t.Helper()
	if err := r.Validate(); err != nil {
		t.Errorf("the server would refuse it: %v", err)
	}
	raw, err := json.Marshal(r)
	if err != nil || len(raw) > 512<<10 {
		t.Errorf("%d bytes, %v", len(raw), err)
	}
	if !utf8.ValidString(r.Message) || r.Counts.Total < r.Counts.Failed {
		t.Errorf("result %+v", r)
	}
}

func checkFollowed(t *testing.T, dir string, run tutti.RunID) {
	t.Helper()
	follower := puppet.Follow(dir, run)
	defer follower.Close()
	for range 2 {
		lives, err := follower.Next()
		if err != nil {
			t.Error(err)
		}
		if _, err := json.Marshal(lives); err != nil {
			t.Errorf("what is seen of it cannot be sent: %v", err)
		}
	}
}
