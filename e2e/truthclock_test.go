//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// The hosts of a lab share the kernel's clock, which no test may set. Therefore TestTruth gives tutti and each Ruby
// process of a host a clock of the host's own. A file of the host has all settings of this clock. The times of files
// follow these settings, too. The settings do not change the monotonic clock. On a real machine, too, setting the
// clock does not change the monotonic clock.
const (
	clockFile = "/run/tutti-test-clock"
	clockRuby = "/usr/local/lib/tutti-test-clock.rb"
	// A setting of the clock begins to count clockSoon after the test has written it. In the meantime each process
	// reads the file, so that all processes of a host have the same clock at each moment.
	clockSoon = 400 * time.Millisecond
)

// These are the limits for wrong clocks. All credentials of the fleet are valid within these limits. A node's membership
// lasts 180 days.
const (
	clocksBegin = 20 * 24 * time.Hour // the clocks are behind by this time when the fleet begins
	clockBack   = 15 * 24 * time.Hour
	clockAhead  = 100 * 24 * time.Hour
)

// clockParts are the places where the program gets a wall clock. In each of these files the text occurs once.
var clockParts = []struct{ file, text, with string }{
	{"GOROOT/src/time/time.go", "\tsec, nsec, mono := runtimeNow()\n", "\tsec, nsec, mono := runtimeNow()\n\tsec, nsec = onTestClock(sec, nsec)\n"},
	{"GOROOT/src/os/stat_linux.go", "time.Unix(fs.sys.Mtim.Unix())", "time.OnTestClock(time.Unix(fs.sys.Mtim.Unix()))"},
	{"TREE/internal/agent/facts.go", "time.Unix(st.Ctim.Unix())", "time.OnTestClock(time.Unix(st.Ctim.Unix()))"},
}

// clockedProgram builds tutti with a clock that a test can set.
func clockedProgram(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	goroot := output(t, "go", "env", "GOROOT")
	tree, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	clock, err := filepath.Abs("testdata/clock/clock.go")
	if err != nil {
		t.Fatal(err)
	}
	replace := map[string]string{filepath.Join(goroot, "src/time/testclock.go"): clock}
	for i, p := range clockParts {
		file := strings.NewReplacer("GOROOT", goroot, "TREE", tree).Replace(p.file)
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), p.text); n != 1 {
			t.Fatalf("%s contains %q %d times, want once: %s has changed, so change clockParts too", file, p.text, n, p.file)
		}
		replace[file] = filepath.Join(dir, fmt.Sprintf("%d.go", i))
		if err := os.WriteFile(replace[file], []byte(strings.Replace(string(source), p.text, p.with, 1)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file, program := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "tutti")
	if err := os.WriteFile(file, overlay, 0o644); err != nil {
		t.Fatal(err)
	}
	version := strings.Fields(output(t, binary, "--version"))
	flags := "-s -w -X github.com/tutti-project/tutti/internal/app.Version=" + version[len(version)-1]
	cmd := exec.CommandContext(t.Context(), "go", "build", "-C", tree, "-trimpath", "-overlay", file, "-ldflags", flags, "-o", program, "./cmd/tutti")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build tutti with a clock that can be set: %v\n%s", err, out)
	}
	return program
}

// The function `output` runs a command on this machine and returns what it printed.
func output(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).Output()
	if err != nil {
		t.Fatalf("%s %v: %v", name, args, err)
	}
	return strings.TrimSpace(string(out))
}

// clocks are the clocks of the hosts of a lab.
type clocks struct {
	settings map[string]string        // by host, with a line for each time when the clock was set
	wrong    map[string]time.Duration // for each wrong clock: how far it is ahead
}

// newClocks makes the Ruby of the hosts use their clocks.
func newClocks(t *testing.T, running *lab.Running) *clocks {
	t.Helper()
	for _, h := range running.Hosts {
		if err := h.CopyIn(t.Context(), "testdata/clock/clock.rb", clockRuby); err != nil {
			t.Fatal(err)
		}
		sh(t, h, `file=/usr/lib/ruby/vendor_ruby/rubygems/defaults/operating_system.rb
			[ -f "$file" ]
			echo "require '`+clockRuby+`'" >> "$file"`)
	}
	return &clocks{settings: map[string]string{}, wrong: map[string]time.Duration{}}
}

// The method `set` sets the clock of a host. The clock is then ahead of the right time by this duration. The method
// returns when the clock is set.
func (c *clocks) set(t *testing.T, h *lab.Host, ahead time.Duration) {
	t.Helper()
	from := time.Now().Add(clockSoon)
	if c.settings[h.Name] == "" {
		from = time.Unix(0, 0) // the first setting also applies to the times of files that the host already has
	}
	c.settings[h.Name] += fmt.Sprintf("%d %d\n", from.UnixNano(), ahead)
	if c.wrong[h.Name] = ahead; ahead == 0 {
		delete(c.wrong, h.Name)
	}
	sh(t, h, fmt.Sprintf("printf %%s '%s' > %s.part; mv %[2]s.part %[2]s", c.settings[h.Name], clockFile))
	if from.Unix() > 0 && !time.Now().Before(from) {
		t.Logf("the clock of %s was set too late: some of its processes had the old clock for a moment longer", h.Name)
	}
	eventually(t, "the clock of "+h.Name+" to be set", func() bool { return time.Now().After(from) })
}

var clockOffRE = regexp.MustCompile(`the clock here is -?(479h59m|480h0m)\d+s off`)

// The method `check` fails the test if the programs on the hosts do not have the clocks that are set. At this moment,
// all clocks are behind by clocksBegin.
func (c *clocks) check(t *testing.T, f *stage.LabFleet) {
	t.Helper()
	h := f.Nodes[0]
	const script = `file=$(mktemp); ruby -e 'puts [Time.now, Time.new, DateTime.now.to_time, File.mtime(ARGV[0]), File.stat(ARGV[0]).ctime].map(&:to_i)' "$file"; rm "$file"`
	for _, text := range strings.Fields(sh(t, h, script)) {
		seconds, err := strconv.ParseInt(text, 10, 64)
		if off := time.Until(time.Unix(seconds, 0)) + clocksBegin; err != nil || off.Abs() > time.Minute {
			t.Fatalf("Ruby's clock on %s is off by %s: %v", h.Name, off, err)
		}
	}
	c.set(t, f.Server, 0)
	if said := sh(t, h, "tutti doctor || true"); !clockOffRE.MatchString(said) {
		t.Fatalf("the clock of tutti on %s is not behind that of the server by %s: %s", h.Name, clocksBegin, said)
	}
}

// wrongClock sets the clock of a host to a wrong time, which is hours or days off.
func (w *truth) wrongClock(h *lab.Host) {
	w.t.Helper()
	most := clockAhead
	back := w.rnd.IntN(2) == 0
	if back {
		most = clockBack
	}
	switch w.rnd.IntN(3) {
	case 0:
		most = 24 * time.Hour
	case 1:
		most = 3 * 24 * time.Hour
	}
	off := time.Minute + time.Duration(w.rnd.Int64N(int64(most-time.Minute))).Round(time.Second)
	if back {
		off = -off
	}
	w.say(fmt.Sprintf("clock of %s %s", h.Name, off))
	w.clocks.set(w.t, h, off)
}

// rightClocks calls the function `may` for each wrong clock. If `may` returns true, rightClocks
// sets this clock to the right time.
func (w *truth) rightClocks(may func() bool) {
	w.t.Helper()
	var wrong []string
	for name := range w.clocks.wrong {
		wrong = append(wrong, name)
	}
	slices.Sort(wrong)
	for _, name := range wrong {
		if may() {
			w.say("right-clock of " + name)
			w.clocks.set(w.t, w.host(name), 0)
		}
	}
}
