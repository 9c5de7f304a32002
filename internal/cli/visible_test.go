package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

const hostile = "a\x1b[2K\rb\u009b2J\u202ec\x7f\td\n"

// TestWhatIsWrittenIsVisible checks that text is made visible, even if a character is split
// between two writes.
func TestWhatIsWrittenIsVisible(t *testing.T) {
	const want = `a\u001b[2K\u000db\u009b2J\u202ec\u007f` + "\td\n"
	if _, is := NewRoot(Deps{}).OutOrStdout().(*visibleWriter); !is {
		t.Error("what commands print is not made visible")
	}
	for cut := range len(hostile) {
		path := filepath.Join(t.TempDir(), "out")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		w := &visibleWriter{file: f}
		for _, part := range []string{hostile[:cut], hostile[cut:]} {
			if n, err := w.Write([]byte(part)); n != len(part) || err != nil {
				t.Fatal(n, err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("cut at %d: %q, %v, want %q", cut, got, err, want)
		}
	}
}

// TestATreeObeysNobodyElse checks that only the tree's own colour escapes reach the terminal.
func TestATreeObeysNobodyElse(t *testing.T) {
	got := visiblePainted(palette(true).bold("job") + palette(true).dim(hostile) + "\x1b[8m")
	want := "\x1b[1mjob\x1b[0m\x1b[2m" + `a\u001b[2K\u000db\u009b2J\u202ec\u007f` + "\td \x1b[0m" + `\u001b[8m`
	if got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if strings.Contains(visiblePainted("plain"), "u00") {
		t.Error("plain text is changed")
	}
}

// TestACellForgesNoRow checks that a text in a cell cannot make another row or column.
func TestACellForgesNoRow(t *testing.T) {
	var out bytes.Buffer
	if err := table(&out, "SEQ\tWHAT", [][]string{{"1", "cancelled: x\n2\tremoved node web-01"}}); err != nil {
		t.Fatal(err)
	}
	if want := "SEQ  WHAT\n1    cancelled: x 2 removed node web-01\n"; out.String() != want {
		t.Errorf("%q, want %q", out.String(), want)
	}
}

// TestAnAuditLineIsNotLong checks that an audit line fits into one datagram of syslog, even if
// a reason is very long.
func TestAnAuditLineIsNotLong(t *testing.T) {
	raw, err := json.Marshal(tutti.Event{By: "operator:eve", Body: &tutti.JobCancelled{Job: "deploy-1", Reason: strings.Repeat("\x01", 1<<20)}})
	if err != nil {
		t.Fatal(err)
	}
	line, err := AuditLine(api.AuditEntry{Seq: 7, Raw: raw})
	if err != nil || len(line) > 64<<10 || !strings.Contains(string(line), "cancelled job deploy-1") {
		t.Errorf("%d bytes, %v: %.100s", len(line), err, line)
	}
}
