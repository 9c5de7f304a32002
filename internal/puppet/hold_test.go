package puppet

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
)

const holdWords = "Tutti job deploy-1: kernel"

// files returns the names in the directory of the file that disables Puppet.
func files(t *testing.T, c Config) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Dir(c.DisabledLock))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

// TestHoldAndUnhold: Unhold removes only the file that Hold made, and leaves no other
// file behind.
func TestHoldAndUnhold(t *testing.T) {
	const theirs = `{"disabled_message":"new disk, ask jo"}`
	for _, tc := range []struct {
		reason string
		before string // content of the file; empty: there is no file
		hold   error
		then   string // what somebody writes afterwards; "-" removes the file
		held   tutti.LeaseReport
		after  string // content after Unhold; empty: no file
	}{
		{"as it should be", "", nil, "", tutti.LeaseReport{Ours: true, Message: holdWords}, ""},
		{"disabled before", theirs, fs.ErrExist, "", tutti.LeaseReport{Message: "new disk, ask jo"}, theirs},
		{"disabled by a file that says nothing", "x", fs.ErrExist, "", tutti.LeaseReport{Message: "reason not known"}, "x"},
		{"disabled by somebody else meanwhile", "", nil, theirs, tutti.LeaseReport{Message: "new disk, ask jo"}, theirs},
		{"with our words and one byte more", "", nil, string(DisabledBy(holdWords)) + "\n", tutti.LeaseReport{Message: holdWords}, string(DisabledBy(holdWords)) + "\n"},
		{"enabled by somebody else", "", nil, "-", tutti.LeaseReport{Enabled: true}, ""},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l, c := local(t)
			put := func(content string) {
				if err := os.MkdirAll(filepath.Dir(c.DisabledLock), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(c.DisabledLock, []byte(content), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			if tc.before != "" {
				put(tc.before)
			}
			if err := l.Hold(holdWords); !errors.Is(err, tc.hold) {
				t.Fatalf("hold: %v, want %v", err, tc.hold)
			}
			switch tc.then {
			case "":
			case "-":
				if err := os.Remove(c.DisabledLock); err != nil {
					t.Fatal(err)
				}
			default:
				put(tc.then)
			}
			got, err := l.Standing(holdWords)
			if tc.before == "x" && len(got.Message) > len(tc.held.Message) {
				got.Message = got.Message[:len(tc.held.Message)]
			}
			if diff := cmp.Diff(tc.held, got); err != nil || diff != "" {
				t.Errorf("standing %v: -want +got\n%s", err, diff)
			}
			for range 2 {
				if err := l.Unhold(holdWords); err != nil {
					t.Fatal(err)
				}
			}
			raw, err := os.ReadFile(c.DisabledLock)
			if string(raw) != tc.after || err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("after unhold: %q, %v; want %q", raw, err, tc.after)
			}
			var want []string
			if tc.after != "" {
				want = []string{filepath.Base(c.DisabledLock)}
			}
			if diff := cmp.Diff(want, files(t, c)); diff != "" {
				t.Errorf("left behind: -want +got\n%s", diff)
			}
		})
	}
}

// TestUnholdLosesARace: somebody disables Puppet after Unhold has read the file and before it
// removes the file.
func TestUnholdLosesARace(t *testing.T) {
	l, c := local(t)
	if _, err := l.Disable("new disk, ask jo", false); err != nil {
		t.Fatal(err)
	}
	if err := takeAway(c.DisabledLock, holdWords); err != nil {
		t.Fatal(err)
	}
	if message, enabled, err := readDisabled(c.DisabledLock); enabled || message != "new disk, ask jo" || err != nil {
		t.Errorf("enabled %t, %q, %v: want theirs", enabled, message, err)
	}
	if diff := cmp.Diff([]string{filepath.Base(c.DisabledLock)}, files(t, c)); diff != "" {
		t.Errorf("left behind: -want +got\n%s", diff)
	}
}

// TestUnholdAfterAKill: Unhold removes the files that a killed Hold has left.
func TestUnholdAfterAKill(t *testing.T) {
	l, c := local(t)
	if err := l.Hold(holdWords); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(c.DisabledLock, aside(c.DisabledLock)); err != nil {
		t.Fatal(err)
	}
	if err := l.Unhold(holdWords); err != nil {
		t.Fatal(err)
	}
	if got := files(t, c); got != nil {
		t.Errorf("left behind: %v", got)
	}
}

// TestStandingNamesARun: Standing names the run of a process that Puppet takes for its
// own.
func TestStandingNamesARun(t *testing.T) {
	l, c := local(t)
	pid := strconv.Itoa(process(t, "puppet-agent"))
	if err := os.MkdirAll(filepath.Dir(c.RunLock), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.RunLock, []byte(pid), 0o644); err != nil {
		t.Fatal(err)
	}
	got, err := l.Standing("")
	if diff := cmp.Diff(tutti.LeaseReport{Enabled: true, Busy: "pid " + pid}, got); err != nil || diff != "" {
		t.Errorf("%v: -want +got\n%s", err, diff)
	}
}
