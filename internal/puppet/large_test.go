package puppet_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
	"github.com/tutti-project/tutti/internal/puppet"
)

const large = 300 << 20

// endedWell writes the files that a launcher leaves after a run that has changed
// something.
func endedWell(t *testing.T, dir string) {
	t.Helper()
	phases := `{"t":"2026-01-01T00:00:00.000Z","phase":"settings"}
{"t":"2026-01-01T00:00:01.000Z","phase":"gate","verdict":"go"}
{"t":"2026-01-01T00:00:02.000Z","phase":"apply"}
{"t":"2026-01-01T00:00:03.000Z","phase":"done","exit":2}
`
	if err := os.WriteFile(filepath.Join(dir, "phase.jsonl"), []byte(phases), 0o600); err != nil {
		t.Fatal(err)
	}
}

// A run logs very many error messages, and its report contains all of these messages. Judging this run must fit
// into memory.
func TestARunThatSaysALotIsJudged(t *testing.T) {
	if !hostile.Alone(t, 128<<20) {
		return
	}
	dir := t.TempDir()
	endedWell(t, dir)
	word := strings.Repeat("x", 900)
	hostile.Fill(t, filepath.Join(dir, "log.jsonl"), large, "", fmt.Sprintf(`{"level":"err","message":"%s","source":"/File[/x]"}`+"\n", word), "")
	hostile.Fill(t, filepath.Join(dir, "stderr"), large, "", word+"\n", "")
	hostile.Fill(t, filepath.Join(dir, "report.json"), large, `{"transaction_uuid":"run","status":"changed","logs":[{"message":"first"}`,
		fmt.Sprintf(`,{"level":"err","message":"%s","tags":["a","b"]}`, word), `],"resource_statuses":{"File[/x]":{"resource":"File[/x]","changed":true}}}`)
	got := puppet.Judge(dir, "run")
	if got.Outcome != tutti.Changed || got.Counts.Changed != 1 {
		t.Errorf("%+v, want changed", got)
	}
}

// A very long line without an end is dropped. The run is still judged, and memory does
// not keep the line.
func TestALineWithoutAnEndIsLeftOut(t *testing.T) {
	if !hostile.Alone(t, 128<<20) {
		return
	}
	dir := t.TempDir()
	endedWell(t, dir)
	hostile.Fill(t, filepath.Join(dir, "log.jsonl"), large, `{"level":"err","message":"`, strings.Repeat("x", 1000), `"}`+"\n"+`{"level":"err","message":"after it"}`+"\n")
	hostile.Fill(t, filepath.Join(dir, "events.jsonl"), large, "", strings.Repeat("x", 1000), "\n"+`{"event":"start","resource":"Service[x]","notifies":["Exec[y]"]}`+"\n")
	if err := os.WriteFile(filepath.Join(dir, "report.json"), []byte(`{"transaction_uuid":"run","status":"failed"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	got := puppet.Judge(dir, "run")
	if got.Message != "after it" || len(got.Failures) != 2 || got.Failures[1].Resource != "Exec[y]" {
		t.Errorf("%+v, want what is after the line", got)
	}
	follow := puppet.Follow(dir, "run")
	defer follow.Close()
	seen := 0
	for range large>>20 + 10 {
		lives, err := follow.Next()
		if err != nil {
			t.Fatal(err)
		}
		seen += len(lives)
	}
	if seen != 5 {
		t.Errorf("%d live messages, want four phases and one event", seen)
	}
}

// An interrupted run may leave refreshes that it has not done. The result lists them up to a bound.
// Above the bound, the result says that the lost refreshes are not known.
func TestEventsWithoutAnEndAreNotKept(t *testing.T) {
	if !hostile.Alone(t, 128<<20) {
		return
	}
	dir := t.TempDir()
	phases := `{"t":"2026-01-01T00:00:00.000Z","phase":"apply"}` + "\n"
	if err := os.WriteFile(filepath.Join(dir, "phase.jsonl"), []byte(phases), 0o600); err != nil {
		t.Fatal(err)
	}
	file, err := os.Create(filepath.Join(dir, "events.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 300 {
		if _, err := fmt.Fprintf(file, `{"event":"start","resource":"Exec[%d]","notifies":["Exec[%s]"]}`+"\n", i, strings.Repeat("x", 1<<20)); err != nil {
			t.Fatal(err)
		}
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	got := puppet.Judge(dir, "run")
	if got.Outcome != tutti.Interrupted || len(got.Failures) > 0 || !strings.Contains(got.Message, "too many resources") {
		t.Errorf("%+v, want an interrupted run that does not know what it owes", got)
	}
}

// Puppet's files must be regular files. If one of these files is a pipe, Judge does not
// wait for data from the pipe.
func TestAPipeIsNoReport(t *testing.T) {
	dir := t.TempDir()
	endedWell(t, dir)
	for _, name := range []string{"report.json", "stderr", "log.jsonl"} {
		if err := mkfifo(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if got := puppet.Judge(dir, "run"); got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery {
		t.Errorf("%+v, want a failure of the machinery", got)
	}
}
