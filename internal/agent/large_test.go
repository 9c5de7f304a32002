package agent_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/hostile"
)

// If a run's log and report are very large, the agent sends only the beginning and the end of the log,
// and the report without its messages. The agent never has the whole log or report in memory. Server
// and agent share the process of this test.
func TestARunThatSaysALotIsSentInPart(t *testing.T) {
	if !hostile.Alone(t, 300<<20) {
		return
	}
	const large = 400 << 20
	l := newLab(t, func(p *puppet) tutti.Result {
		out := applies(p)
		line := func(i int) string {
			return fmt.Sprintf(`{"t":"2026-01-01T00:00:00.000Z","level":"notice","message":"%d %s"}`+"\n", i, strings.Repeat("x", 900))
		}
		hostile.Fill(t, filepath.Join(p.dir, "log.jsonl"), large, line(1), line(2), line(3))
		hostile.Fill(t, filepath.Join(p.dir, "report.json"), large, `{"logs":["first"`, `,"`+strings.Repeat("x", 900)+`"`, `],"status":"changed"}`)
		return out
	})
	l.start()
	got := l.end(l.job())
	if got.Outcome != tutti.Changed {
		t.Errorf("%+v, want changed", got)
	}
	log, err := l.fleet.Blobs.Get(t.Context(), got.Log)
	if err != nil || len(log) < 31<<20 || len(log) > 33<<20 {
		t.Fatalf("a log of %d bytes, %v, want 32 MiB", len(log), err)
	}
	lines := bytes.Split(bytes.TrimSpace(log), []byte("\n"))
	cut := 0
	for i, line := range lines {
		var said struct{ Level, Message string }
		if err := json.Unmarshal(line, &said); err != nil {
			t.Fatalf("line %d: %.100s: %v", i, line, err)
		}
		first, _, _ := strings.Cut(said.Message, " ")
		switch {
		case strings.Contains(said.Message, "bytes of this log were cut out here; the whole log is in "+l.runDir(got.Run)+"/log.jsonl on db-01"):
			cut++
		case i == 0 && first != "1", i == len(lines)-1 && first != "3", i > 0 && i < len(lines)-1 && first != "2":
			t.Fatalf("line %d of %d: %.100s", i, len(lines), line)
		}
	}
	if cut != 1 {
		t.Errorf("%d lines say that something was cut out, want 1", cut)
	}
	if report, err := l.fleet.Blobs.Get(t.Context(), got.Report); string(report) != `{"logs":[],"status":"changed"}` || err != nil {
		t.Errorf("report %.100s, %v", report, err)
	}
}
