package tutti_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

// The function `journal` returns Puppet's message about a unit that systemd could not start.
func journal(lines ...string) string {
	return "change from 'stopped' to 'running' failed: Systemd start for web failed!\njournalctl log for web:\n" + strings.Join(lines, "\n")
}

func TestSplitJournal(t *testing.T) {
	var many []string
	for i := range 50 {
		many = append(many, fmt.Sprintf("Nov 25 13:00:00 web-01 web[7]: line %d", i))
	}
	long := strings.Repeat("x", 400)
	const said = "change from 'stopped' to 'running' failed: Systemd start for web failed"
	for _, tc := range []struct {
		reason, text, said, unit string
		journal                  []string
	}{
		{"no journal", "no such file\nat all", "no such file\nat all", "", nil},
		{"somebody else's words", "x\njournalctl log for web:\ny", "x\njournalctl log for web:\ny", "", nil},
		{"the last lines say why", journal(many...), said, "web", many[30:]},
		{"what journalctl says of itself", journal("-- Journal begins at Tue --", "a", "", "-- No entries --"), said, "web", []string{"a"}},
		{"nothing in it", journal(), said, "web", nil},
		{"long lines", journal(long, "b"), said, "web", []string{tutti.Plain(long, 300), "b"}},
		{"much of them", journal(slices.Repeat([]string{long}, 20)...), said, "web", slices.Repeat([]string{tutti.Plain(long, 300)}, 10)},
	} {
		gotSaid, unit, lines := tutti.SplitJournal(tc.text)
		if gotSaid != tc.said || unit != tc.unit {
			t.Errorf("%s: %q of %q, want %q of %q", tc.reason, gotSaid, unit, tc.said, tc.unit)
		}
		if diff := cmp.Diff(tc.journal, lines); diff != "" {
			t.Errorf("%s: -want +got\n%s", tc.reason, diff)
		}
		if _, _, again := tutti.SplitJournal(tutti.CutJournal(tc.text)); !cmp.Equal(again, lines) {
			t.Errorf("%s: cut, it has %q", tc.reason, again)
		}
	}
}

func TestWithoutJournal(t *testing.T) {
	const said = "change from 'stopped' to 'running' failed: Systemd start for web failed"
	for _, tc := range []struct{ reason, text, want string }{
		{"no journal", "no such file", "no such file"},
		{
			"what the unit itself wrote last",
			journal("Nov 25 13:00:00 web-01 systemd[1]: Starting web...", "Nov  5 13:00:00 web-01 web[7]: cannot bind: in use", "Nov 25 13:00:01 web-01 systemd[1]: Failed to start web."),
			said + ": web: cannot bind: in use",
		},
		{"systemd alone", journal("Nov 25 13:00:01 web-01 systemd[1]: Failed to start web."), said},
		{"another format", journal("2026-11-25T13:00:00 cannot bind"), said + ": 2026-11-25T13:00:00 cannot bind"},
	} {
		if got := tutti.WithoutJournal(tc.text); got != tc.want {
			t.Errorf("%s: %q, want %q", tc.reason, got, tc.want)
		}
	}
}
