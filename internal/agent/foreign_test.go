package agent_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// witness is an agent.Witness whose reports are tutti.Foreign in JSON.
type witness struct {
	file    string
	reading func() // called before a look reads the report; nil if not needed

	mu    sync.Mutex
	apply string // the report file of `puppet apply`; empty if `puppet apply` writes its reports to `file`
	fails error
	hold  func() // like `reading`, but only the next look calls `hold`
	looks int
	next  chan struct{} // closed by the next look
}

// witnesses returns a witness, and the option that gives this witness to a lab's agents. The directory
// of the witness's report exists already, as if Puppet's first run had begun.
func witnesses(t *testing.T) (*witness, func(*agent.Options)) {
	t.Helper()
	w := &witness{file: filepath.Join(t.TempDir(), "puppet", "state", "last_run_report.yaml"), next: make(chan struct{})}
	w.makeDir(t)
	if err := os.MkdirAll(filepath.Dir(w.conf()), 0o755); err != nil {
		t.Fatal(err)
	}
	return w, func(o *agent.Options) { o.Witness = w }
}

// makeDir makes the directory of the report if it does not exist.
func (w *witness) makeDir(t *testing.T) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(w.file), 0o755); err != nil {
		t.Fatal(err)
	}
}

// ReportFiles is called at the beginning of each look.
func (w *witness) ReportFiles() (files []string, conf string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.looks++
	close(w.next)
	w.next = make(chan struct{})
	files = []string{w.file}
	if w.apply != "" {
		files = append(files, w.apply)
	}
	return files, w.conf(), w.fails
}

func (w *witness) LastReport(_ context.Context, _ tutti.NodeName, file string) (tutti.Foreign, []byte, error) {
	w.mu.Lock()
	once := w.hold
	w.hold = nil
	w.mu.Unlock()
	if once != nil {
		once()
	}
	if w.reading != nil {
		w.reading()
	}
	raw, err := os.ReadFile(file)
	if err != nil {
		return tutti.Foreign{}, nil, err
	}
	var out tutti.Foreign
	if err := json.Unmarshal(raw, &out); err != nil {
		return out, nil, tutti.Wrap(tutti.CodeInvalid, err, "%s", file)
	}
	out.Result.Report = tutti.DigestOf(raw)
	return out, raw, nil
}

// The method `seen` waits until the agent has looked n times.
func (w *witness) seen(n int) {
	for {
		w.mu.Lock()
		looks, next := w.looks, w.next
		w.mu.Unlock()
		if looks >= n {
			return
		}
		<-next
	}
}

func (w *witness) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.looks
}

// The method `leave` writes text to the report file by rename, as Puppet does.
func (w *witness) leave(t *testing.T, text string) {
	t.Helper()
	w.makeDir(t)
	if err := os.WriteFile(w.file+".new", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(w.file+".new", w.file); err != nil {
		t.Fatal(err)
	}
}

// leaveAll leaves the reports of several runs, one after the other. Only the run with the number
// `changed` has changed something.
func (w *witness) leaveAll(t *testing.T, runs, changed int) {
	t.Helper()
	for i := range runs {
		text := report(t, i, foreignID(i))
		if i == changed {
			text = strings.Replace(text, `"changed":0`, `"changed":1`, 1)
		}
		w.leave(t, text)
		w.taken(t)
	}
}

// The method `taken` waits until the agent has handled the report, with or without success. One
// look sees the report. When the next look has begun, the agent has handled the report.
func (w *witness) taken(t *testing.T) {
	t.Helper()
	for range 2 {
		n := w.count()
		if err := os.Chtimes(w.file, time.Time{}, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.seen(n + 1)
	}
}

// report returns the report of the i-th run.
func report(t *testing.T, i int, run tutti.RunID) string {
	t.Helper()
	began := time.Date(2026, 1, 1, 0, i, 0, 0, time.UTC)
	raw, err := json.Marshal(tutti.Foreign{Result: tutti.Result{Run: run, Outcome: tutti.Unchanged, StartedAt: began, EndedAt: began}})
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

func foreignID(i int) tutti.RunID {
	return tutti.RunID(fmt.Sprintf("f0000000-0000-4000-8000-%012d", i))
}

// The method `quiet` waits until the agent has reported everything that it has seen and can report.
// The first look that this method sees may have begun before the connection was mended. The second one has not, and it has
// ended when the third one begins.
func (l *lab) quiet(w *witness) {
	for range 3 {
		n := w.count()
		l.line.mend()
		w.seen(n + 1)
	}
}

// The method `told` returns the foreign runs in the log.
func (l *lab) told() []tutti.RunID {
	var out []tutti.RunID
	for _, e := range l.fleet.Events() {
		if b, ok := e.Body.(*tutti.RunForeign); ok {
			out = append(out, b.Result.Run)
		}
	}
	return out
}

// The method `untold` returns the runs in the agent's outbox that no server has taken.
func (l *lab) untold() []tutti.RunID {
	l.t.Helper()
	files, err := filepath.Glob(filepath.Join(l.dir, "foreign", "*.json"))
	if err != nil {
		l.t.Fatal(err)
	}
	var out []tutti.RunID
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the agent has just removed it
		}
		if err != nil {
			l.t.Fatal(err)
		}
		if !strings.Contains(string(raw), `"told":`) {
			out = append(out, tutti.RunID(strings.TrimSuffix(filepath.Base(file), ".json")))
		}
	}
	return out
}

// The method `knows` waits until the agent has noted the epoch of its server.
func (l *lab) knows(epoch uint64) {
	l.t.Helper()
	l.line.wait(fmt.Sprintf("a claim that is answered in epoch %d", epoch), func() bool {
		raw, err := os.ReadFile(filepath.Join(l.dir, agent.BegunFile))
		return err == nil && strings.Contains(string(raw), fmt.Sprintf(`"number":%d`, epoch))
	})
}

func (l *lab) wantTold(want ...tutti.RunID) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.told()); diff != "" {
		l.t.Errorf("told: -want +got\n%s", diff)
	}
}

// TestAForeignRunIsToldOnce: the agent sees a foreign run when its report arrives,
// even if the directory is new, and when the agent starts. The agent never reports a
// run twice.
func TestAForeignRunIsToldOnce(t *testing.T) {
	for _, tc := range []struct {
		reason string
		before bool
	}{
		{"the report is there when the agent starts", true},
		{"it comes later, with its directory", false},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			w, opt := witnesses(t)
			l.start(opt, quick)
			l.knows(1)
			if tc.before {
				l.kill()
				w.leave(t, report(t, 1, foreignID(1)))
				l.start(opt, quick)
			} else {
				if err := os.RemoveAll(filepath.Dir(filepath.Dir(w.file))); err != nil {
					t.Fatal(err)
				}
				l.start(opt, quick)
				w.seen(w.count() + 1)
				w.makeDir(t) // when Puppet begins
				l.quiet(w)
				w.leave(t, report(t, 1, foreignID(1)))
			}
			l.line.until(wire.OpForeign, 1)
			// Wait until the server has the first report. If the agent connected again before that, the
			// agent would send the run again.
			l.line.wait("a foreign run to be told", func() bool { return len(l.told()) > 0 })
			l.quiet(w)
			l.wantTold(foreignID(1))
			for _, e := range l.fleet.Events() {
				if b, ok := e.Body.(*tutti.RunForeign); ok && b.Unwatched != tc.before {
					t.Errorf("it ended while nobody watched: %t, want %t", b.Unwatched, tc.before)
				}
			}
			w.leave(t, report(t, 1, foreignID(1))) // the same again
			l.quiet(w)
			l.start(opt)
			l.quiet(w)
			l.wantTold(foreignID(1))
			if n := l.line.count(wire.OpForeign); n != 1 {
				t.Errorf("it was sent %d times", n)
			}
		})
	}
}

// TestADirectoryThatIsMadeAnew: the agent also watches a directory that was removed
// and made again.
func TestADirectoryThatIsMadeAnew(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt)
	l.quiet(w)
	if err := os.RemoveAll(filepath.Dir(w.file)); err != nil {
		t.Fatal(err)
	}
	w.leave(t, report(t, 1, foreignID(1)))
	l.line.wait("the run", func() bool { return slices.Contains(l.told(), foreignID(1)) })
}

// TestARunOfOursIsNotForeign: Puppet writes the report of our run to the same file
// as the reports of foreign runs.
func TestARunOfOursIsNotForeign(t *testing.T) {
	w, opt := witnesses(t)
	l := newLab(t, func(p *puppet) tutti.Result {
		w.leave(t, report(t, 1, p.spec.Order.Run))
		return applies(p)
	})
	l.start(opt)
	l.end(l.job())
	l.quiet(w)
	l.kill()
	if err := os.RemoveAll(filepath.Join(l.dir, "runs")); err != nil { // in practice the agent removes these directories after some time
		t.Fatal(err)
	}
	l.start(opt)
	l.quiet(w)
	l.wantTold()
	if n := l.line.count(wire.OpForeign); n != 0 {
		t.Errorf("%d were sent", n)
	}
}

// TestAForeignRunSurvivesBothEnds: the agent reports a foreign run exactly once,
// even if the agent or the server is killed.
func TestAForeignRunSurvivesBothEnds(t *testing.T) {
	for _, tc := range []struct {
		reason string
		kill   func(l *lab, w *witness, opt func(*agent.Options))
	}{
		{"the agent is killed before it has told", func(l *lab, w *witness, opt func(*agent.Options)) {
			at := l.line.stopAt(wire.OpForeign, false)
			w.leave(t, report(t, 1, foreignID(1)))
			<-at.reached
		}},
		{"the agent is killed when the server has it", func(l *lab, w *witness, opt func(*agent.Options)) {
			at := l.line.stopAt(wire.OpForeign, true)
			w.leave(t, report(t, 1, foreignID(1)))
			<-at.reached
		}},
		{"the server is away, and the next report is another's", func(l *lab, w *witness, opt func(*agent.Options)) {
			l.line.sever()
			n := w.count()
			w.leave(t, report(t, 1, foreignID(1)))
			w.seen(n + 1)
			l.line.until(wire.OpForeign, 1)
			l.put(foreignID(2), "sent", []byte{}) // the present report is from one of our runs
			w.leave(t, report(t, 2, foreignID(2)))
			w.taken(t)
			l.kill()
		}},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			w, opt := witnesses(t)
			l.start(opt)
			l.quiet(w)
			tc.kill(l, w, opt)
			l.start(opt)
			l.quiet(w)
			l.wantTold(foreignID(1))
			if left := l.untold(); left != nil {
				t.Errorf("not told: %v", left)
			}
		})
	}
}

// TestTheOutboxOfForeignRunsIsBounded: while the server is away, the agent keeps no
// more foreign runs than the server would keep.
func TestTheOutboxOfForeignRunsIsBounded(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt)
	l.quiet(w)
	l.line.sever()
	for i := range 8 {
		w.leave(t, report(t, i, foreignID(i)))
		// Only the outbox shows that the agent has seen this run. A message of the agent does not show it, because
		// the message may be about an earlier run.
		l.line.wait(fmt.Sprintf("run %d to be in the outbox", i), func() bool { return slices.Contains(l.untold(), foreignID(i)) })
	}
	if left := l.untold(); len(left) > tutti.KeptForeign+1 {
		t.Errorf("%d in the outbox", len(left))
	}
	n := l.line.count(wire.OpForeign)
	l.line.refuseWith(wire.OpForeign, tutti.Errorf(tutti.CodeInvalid, "for ever"))
	l.quiet(w)
	sent := map[tutti.RunID]bool{} // while the line is cut, the agent may send the first run more than once
	for _, raw := range l.line.payloads(wire.OpForeign)[n:] {
		var one tutti.Foreign
		if err := json.NewDecoder(bytes.NewReader(raw)).Decode(&one); err != nil { // the report follows
			t.Fatal(err)
		}
		sent[one.Result.Run] = true
	}
	if len(sent) != tutti.KeptForeign {
		t.Errorf("%d were sent, want the latest %d", len(sent), tutti.KeptForeign)
	}
	n = l.line.count(wire.OpForeign)
	if l.quiet(w); l.line.count(wire.OpForeign) != n || l.untold() != nil {
		t.Errorf("what is refused for good was sent again, or is kept: %v", l.untold())
	}
}

// TestWhatChangedTheNodeIsTold: a foreign run has changed the node while the server is away. Later
// unchanged runs do not push this run out of the outbox.
func TestWhatChangedTheNodeIsTold(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt)
	l.quiet(w)
	l.line.sever()
	w.leaveAll(t, 8, 0)
	if _, err := os.Stat(filepath.Join(l.dir, "foreign", string(foreignID(0))+".json")); err != nil {
		t.Error("the run that changed something is not in the outbox:", err)
	}
	l.quiet(w)
	l.wantTold(foreignID(0))
}

// The type `restored` implements writer.Epochs for a restored server that begins this epoch.
type restored uint64

func (r restored) Last() (tutti.Epoch, uint64) { return tutti.Epoch{}, uint64(r) }
func (restored) Began(tutti.Epoch) error       { return nil }

// TestARestoredServerIsToldAgain: the server has lost what the agent reported after the backup. The
// agent reports these runs again. These runs do not make the node good, because more runs may have
// happened since.
func TestARestoredServerIsToldAgain(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt, quick)
	l.knows(1)
	backup := l.fleet.Log.Prefix(uint64(len(l.fleet.Everything())))
	w.leave(t, wholeReport(t, foreignID(1), 0))
	l.line.wait("the run", func() bool { return len(l.told()) == 1 })
	l.wantWhole(true)

	for nth := range uint64(2) { // two restores of one backup
		if err := l.fleet.Stop(); err != nil {
			t.Fatal(err)
		}
		l.fleet = servertest.Resume(t, backup.Prefix(math.MaxUint64), l.fleet.Blobs, func(o *server.Options) { o.Epochs = restored(nth + 2) })
		l.line.to(l.fleet)
		l.line.mend()
		l.knows(nth + 2)
		l.quiet(w)
		l.wantTold(foreignID(1))
		l.wantWhole(false)
		n := l.line.count(wire.OpForeign)
		l.start(opt, quick)
		l.quiet(w)
		l.wantTold(foreignID(1))
		if again := l.line.count(wire.OpForeign) - n; again != 0 {
			t.Errorf("it was sent %d times more", again)
		}
	}
}

// wantUnwatched checks whether a reported foreign run says that a run may have ended unseen.
func (l *lab) wantUnwatched(want bool) {
	l.t.Helper()
	got := slices.ContainsFunc(l.fleet.Events(), func(e tutti.Event) bool {
		b, ok := e.Body.(*tutti.RunForeign)
		return ok && b.Unwatched
	})
	if got != want {
		l.t.Errorf("that a run may have ended unseen is told: %t, want %t", got, want)
	}
}

// wantWhole checks whether the log says that the only foreign run was whole.
func (l *lab) wantWhole(want bool) {
	l.t.Helper()
	for _, e := range l.fleet.Events() {
		if b, ok := e.Body.(*tutti.RunForeign); ok && b.Whole != want {
			l.t.Errorf("whole is %t, want %t", b.Whole, want)
		}
	}
}

// TestWhatDisturbsIsToldFirst: the server takes only one run in ten seconds, so the
// agent sends runs that may have harmed the node first.
func TestWhatDisturbsIsToldFirst(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt)
	l.quiet(w)
	l.line.sever()
	w.leaveAll(t, 3, 1)
	l.quiet(w)
	l.wantTold(foreignID(1))
}

// TestTheClockPushesNoForeignRunOut: while the server is away, the clock is ahead for some time and
// is then set right. The outbox keeps the runs that arrived last, whatever their clock says, even
// if the agent restarts.
func TestTheClockPushesNoForeignRunOut(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.start(opt)
	l.quiet(w)
	l.line.sever()
	var want []tutti.RunID
	for i := range 8 {
		began := i
		if i < 6 {
			began = 10_000 - i // the clock is a week ahead, and is set back several times
		}
		w.leave(t, report(t, began, foreignID(i)))
		w.taken(t)
		if i >= 8-tutti.KeptForeign {
			want = append(want, foreignID(i))
		}
		if i == 5 {
			l.kill()
			l.start(opt)
			w.taken(t) // wait until the agent has handled the report that it finds at its start, and watches the report file
		}
	}
	if diff := cmp.Diff(want, l.untold()); diff != "" {
		t.Errorf("in the outbox: -want +got\n%s", diff)
	}
	l.quiet(w)
	l.wantTold(want[0]) // the server takes one run now, and the next run ten seconds later
}

// TestWhatIsNoReportIsOneWarning: if a report cannot be read, the agent logs one warning and reports
// that an unknown run has ended. The agent reports the next run as usual.
func TestWhatIsNoReportIsOneWarning(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	var said strings.Builder
	log := slog.New(slog.NewTextHandler(&said, &slog.HandlerOptions{Level: slog.LevelWarn}))
	l.start(opt, func(o *agent.Options) { o.Logger = log })
	l.quiet(w)
	for range 3 {
		w.leave(t, "{ torn")
		l.quiet(w)
	}
	l.line.wait("a run of which nothing is known", func() bool { return len(l.told()) == 1 })
	l.wantUnwatched(true)
	w.leave(t, report(t, 1, foreignID(1)))
	w.taken(t)
	if left := l.untold(); !slices.Contains(left, foreignID(1)) { // the server takes one run in ten seconds
		t.Errorf("the next run is not in the outbox: %v", left)
	}
	l.kill()
	if n := strings.Count(said.String(), "passed over"); n != 1 || !strings.Contains(said.String(), w.file) {
		t.Errorf("%d warnings:\n%s", n, said.String())
	}
}

// TestRunsOfOursDoNotWait: our runs do not wait for a foreign run that the server
// refuses for now.
func TestRunsOfOursDoNotWait(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	l.line.refuseWith(wire.OpForeign, tutti.Errorf(tutti.CodeUnavailable, "not so soon"))
	w.leave(t, report(t, 1, foreignID(1)))
	l.start(opt)
	l.line.until(wire.OpForeign, 1)
	if got := l.end(l.job()); got.Outcome != tutti.Changed {
		t.Errorf("%+v", got)
	}
	l.wantTold()
	if _, err := os.Stat(filepath.Join(l.dir, "foreign", string(foreignID(1))+".json")); err != nil {
		t.Errorf("it waits for the server: %v", err)
	}
	l.line.refuseWith(wire.OpForeign, nil)
	l.quiet(w)
	l.wantTold(foreignID(1))
}

// TestADamagedOutboxIsNoReasonToStop: the agent names a file of the outbox that it
// cannot read, and removes the file.
func TestADamagedOutboxIsNoReasonToStop(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	dir := filepath.Join(l.dir, "foreign")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"seen", string(foreignID(7)) + ".json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	w.leave(t, report(t, 1, foreignID(1)))
	l.start(opt)
	l.quiet(w)
	l.wantTold(foreignID(1))
	if _, err := os.Stat(filepath.Join(dir, string(foreignID(7))+".json")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the damaged one is there: %v", err)
	}
}
