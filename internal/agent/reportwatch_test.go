package agent_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// The method `save` writes a report the given number of times, as a Puppet with this process id
// does.
func (w *witness) save(t *testing.T, pid, times int, text string) {
	t.Helper()
	w.makeDir(t)
	for i := range times {
		name := fmt.Sprintf("%s20261127-%d-%x", w.file, pid, 4711+i)
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(name, w.file); err != nil {
			t.Fatal(err)
		}
	}
}

// The function `recent` returns the report of a run that began just now.
func recent(t *testing.T, run tutti.RunID) string {
	t.Helper()
	return report(t, int(time.Since(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)).Minutes())+1, run)
}

func (w *witness) remove(t *testing.T) {
	t.Helper()
	if err := os.Remove(w.file); err != nil {
		t.Fatal(err)
	}
}

func rename(t *testing.T, from, to string) {
	t.Helper()
	if err := os.Rename(from, to); err != nil {
		t.Fatal(err)
	}
}

// The method `held` makes the next look call the function `happens` before the look reads the
// report.
func (w *witness) held(happens func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.hold = happens
}

// The method `unwatched` returns the runs of the log whose reports say that other runs may have
// ended unseen before them.
func (l *lab) unwatched() (out []tutti.RunID) {
	for _, e := range l.fleet.Events() {
		if b, ok := e.Body.(*tutti.RunForeign); ok && b.Unwatched {
			out = append(out, b.Result.Run)
		}
	}
	return out
}

// Each report replaces the report before it. If no look has read the replaced report, the agent does not know what
// the run of this report did, and tells the server so. It does not matter who replaced the report. Two saves by one
// run are one report.
func TestReportsThatAreReplacedUnseen(t *testing.T) {
	ours := foreignID(1000)
	for _, tc := range []struct {
		reason    string
		happens   func(t *testing.T, l *lab, w *witness)
		unwatched bool
	}{
		{"one run that saves its report twice", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, recent(t, foreignID(1)))
		}, false},
		{"one run of ours that saves its report twice", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, recent(t, ours))
		}, false},
		{"two of ours in quick succession", func(t *testing.T, l *lab, w *witness) {
			l.put(foreignID(1001), "report.json", []byte("{}"))
			l.put(foreignID(1001), "sent", []byte("{}")) // without this file, the run would look as if it had never begun, and the agent would remove the run's directory
			w.save(t, 100, 2, recent(t, foreignID(1001)))
			w.save(t, 101, 2, recent(t, ours))
		}, false},
		{"the last one is saved once more", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 50, 1, recent(t, foreignID(0)))
		}, false},
		{"two in quick succession", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, recent(t, foreignID(1)))
			w.save(t, 101, 2, recent(t, foreignID(2)))
		}, true},
		{"two that save once each", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 1, recent(t, foreignID(1)))
			w.save(t, 101, 1, recent(t, foreignID(2)))
		}, true},
		{"one just before a run of ours", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, recent(t, foreignID(1)))
			w.save(t, 101, 2, recent(t, ours))
		}, true},
		{"two, and one of ours that was not seen either", func(t *testing.T, l *lab, w *witness) {
			w.save(t, 100, 2, recent(t, foreignID(1)))
			l.put(foreignID(1001), "report.json", []byte("{}"))
			l.put(foreignID(1001), "sent", []byte("{}")) // without this file, the run would look as if it had never begun, and the agent would remove the run's directory
			w.save(t, 101, 2, recent(t, foreignID(1001)))
			w.save(t, 102, 2, recent(t, ours))
		}, true},
		{"one between the two saves of ours", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 101, 1, recent(t, ours))
			w.save(t, 100, 2, recent(t, foreignID(1)))
			w.save(t, 101, 1, recent(t, ours))
		}, true},
		{"one that is removed", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, recent(t, foreignID(1)))
			w.remove(t)
		}, true},
		{"one that nobody can read", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, "{ torn")
		}, true},
		{"one in a directory that was moved away and back", func(t *testing.T, _ *lab, w *witness) {
			dir := filepath.Dir(w.file)
			rename(t, dir, dir+".away")
			w.save(t, 100, 2, recent(t, foreignID(1)))
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			rename(t, dir+".away", dir)
		}, true},
		{"the same with the directory above it", func(t *testing.T, _ *lab, w *witness) {
			dir := filepath.Dir(filepath.Dir(w.file))
			rename(t, dir, dir+".away")
			w.save(t, 100, 2, recent(t, foreignID(1)))
			if err := os.RemoveAll(dir); err != nil {
				t.Error(err)
			}
			rename(t, dir+".away", dir)
		}, true},
		{"one whose directory is removed", func(t *testing.T, _ *lab, w *witness) {
			w.save(t, 100, 2, recent(t, foreignID(1)))
			if err := os.RemoveAll(filepath.Dir(w.file)); err != nil {
				t.Error(err)
			}
		}, true},
	} {
		for _, when := range []string{"between two looks", "while a look reads"} {
			t.Run(tc.reason+" "+when, func(t *testing.T) {
				l := newLab(t, applies)
				w, opt := witnesses(t)
				l.put(ours, "report.json", []byte("{}"))
				l.put(ours, "sent", []byte("{}")) // without this file, the run would look as if it had never begun, and the agent would remove the run's directory
				w.save(t, 49, 2, recent(t, foreignID(0)))
				l.seen(foreignID(0))
				l.start(opt)
				l.quiet(w)
				l.quiet(w)
				done := make(chan struct{})
				w.held(func() { // the next look waits before it reads the present report
					if when == "between two looks" {
						<-done
						return
					}
					tc.happens(t, l, w)
					close(done)
				})
				l.line.mend()
				if when == "between two looks" {
					tc.happens(t, l, w)
					close(done)
				}
				<-done
				l.quiet(w)
				l.quiet(w)
				if got := l.unwatched(); (len(got) > 0) != tc.unwatched {
					t.Errorf("told as unwatched: %v, want any: %t", got, tc.unwatched)
				}
			})
		}
	}
}

// The method `seen` leaves the file of an agent that has looked at the report of a run.
func (l *lab) seen(run tutti.RunID) {
	l.t.Helper()
	if err := os.MkdirAll(filepath.Join(l.dir, "foreign"), 0o700); err != nil {
		l.t.Fatal(err)
	}
	if err := agent.WriteSealed(filepath.Join(l.dir, "foreign", "seen"), map[string]tutti.RunID{"run": run}); err != nil {
		l.t.Fatal(err)
	}
}

// At its start, the agent finds a report that differs from the last report that it has seen. The
// agent does not know which runs happened in the meantime. The runs are also unknown if the new
// report is ours, or if there is no report.
func TestWhatRanWhileTheAgentWasOff(t *testing.T) {
	for _, tc := range []struct {
		reason    string
		leaves    func(t *testing.T, l *lab, w *witness)
		unwatched bool
	}{
		{"the same report", func(t *testing.T, _ *lab, w *witness) { w.save(t, 1, 2, recent(t, foreignID(0))) }, false},
		{"a report of ours", func(t *testing.T, l *lab, w *witness) {
			l.put(foreignID(1), "report.json", []byte("{}"))
			w.save(t, 1, 2, recent(t, foreignID(1)))
		}, true},
		{"no report", func(*testing.T, *lab, *witness) {}, true},
		{"nothing that can be read", func(t *testing.T, _ *lab, w *witness) { w.save(t, 1, 2, "{ torn") }, true},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			l := newLab(t, applies)
			w, opt := witnesses(t)
			l.seen(foreignID(0))
			tc.leaves(t, l, w)
			for range 2 { // the agent reports the unknown run only once
				l.start(opt)
				l.quiet(w)
				l.quiet(w)
			}
			if got := len(l.unwatched()); (got == 1) != tc.unwatched || got > 1 {
				t.Errorf("told as unwatched: %v, want any: %t", l.unwatched(), tc.unwatched)
			}
		})
	}
}

// If the disk is full, the agent remembers the replaced report, and reports it when
// there is room again.
func TestTheDiskIsFullForWhatWasReplaced(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	dir := filepath.Join(l.dir, "foreign")
	w.save(t, 49, 2, recent(t, foreignID(0)))
	l.seen(foreignID(0))
	seen, err := os.ReadFile(filepath.Join(dir, "seen"))
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("none", dir, "tmpfs", 0, "size=32k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.kill()
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	if err := os.WriteFile(filepath.Join(dir, "seen"), seen, 0o600); err != nil {
		t.Fatal(err)
	}
	l.start(opt)
	l.quiet(w)
	stuff := filepath.Join(dir, "stuff")
	if err := os.WriteFile(stuff, make([]byte, 64<<10), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	l.put(foreignID(1000), "report.json", []byte("{}"))
	l.put(foreignID(1000), "sent", []byte("{}")) // without this file, the run would look as if it had never begun, and the agent would remove the run's directory
	w.save(t, 100, 2, recent(t, foreignID(1)))
	w.save(t, 101, 2, recent(t, foreignID(1000))) // ours
	w.taken(t)
	if got := l.unwatched(); got != nil {
		t.Errorf("%v is told, and kept nowhere", got)
	}
	if err := os.Remove(stuff); err != nil {
		t.Fatal(err)
	}
	w.taken(t)
	l.quiet(w)
	if got := l.unwatched(); len(got) != 1 {
		t.Errorf("told as unwatched: %v, want one", got)
	}
}

// If reports arrive without a pause, the agent still sends its outbox, and no report hides another one.
func TestReportsThatComeFasterThanLooks(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	w.save(t, 49, 2, recent(t, foreignID(0)))
	l.seen(foreignID(0))
	next := 1
	var begins atomic.Bool
	w.reading = func() {
		if begins.Load() && next < 50 { // each look finds that another report came while it read
			w.save(t, 100+next, 1, recent(t, foreignID(next)))
			next++
		}
	}
	l.start(opt)
	l.quiet(w)
	begins.Store(true)
	l.line.mend()
	l.line.wait("one of them", func() bool { return len(l.told()) > 0 })
	for range 15 {
		l.quiet(w)
	}
	files, err := filepath.Glob(filepath.Join(l.dir, "foreign", "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if raw, err := os.ReadFile(file); err != nil || strings.Contains(string(raw), `"unwatched":true`) {
			t.Errorf("each was read, and it says that one was not: %.200s, %v", raw, err)
		}
	}
	if _, err := os.Stat(filepath.Join(l.dir, "foreign", string(foreignID(49))+".json")); err != nil {
		t.Error("the last one is not in the outbox:", err)
	}
}

// If the agent cannot note that it has seen a foreign run, it still reports the run
// only once.
func TestWhatCannotBeNotedIsToldOnce(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	if err := os.MkdirAll(filepath.Join(l.dir, "foreign", "seen", "x"), 0o700); err != nil {
		t.Fatal(err)
	}
	l.start(opt, quick)
	l.knows(1)
	l.quiet(w)
	w.save(t, 100, 2, recent(t, foreignID(1)))
	l.line.wait("the run", func() bool { return len(l.told()) > 0 })
	for range 4 {
		l.quiet(w)
		w.taken(t)
	}
	if n := l.line.count(wire.OpForeign); n != 1 {
		t.Errorf("it was sent %d times", n)
	}
}

// The server refuses reports while it does not know whether this machine is the node. The agent keeps
// the refused reports and sends them again later.
func TestAConflictLosesNothing(t *testing.T) {
	l := newLab(t, applies)
	w, opt := witnesses(t)
	refused := tutti.Errorf(tutti.CodeUnauthenticated, "two machines have the key of node db-01")
	l.start(opt)
	l.quiet(w)
	for _, op := range []string{wire.OpResult, wire.OpForeign, wire.OpBlobPut} {
		l.line.refuseWith(op, refused)
	}
	job := l.job()
	w.save(t, 100, 2, recent(t, foreignID(1)))
	l.line.until(wire.OpResult, 3)
	l.line.until(wire.OpForeign, 1)
	for _, op := range []string{wire.OpResult, wire.OpForeign, wire.OpBlobPut} {
		l.line.refuseWith(op, nil)
	}
	l.quiet(w)
	if got := l.end(job); got.Outcome != tutti.Changed {
		t.Errorf("result %+v", got)
	}
	l.line.wait("the foreign run", func() bool { return slices.Contains(l.told(), foreignID(1)) })
	var sent []string
	l.line.wait("the file that says that the result was sent", func() bool {
		sent, _ = filepath.Glob(filepath.Join(l.dir, "runs", "*", "sent"))
		return len(sent) > 0
	})
	if len(sent) != 1 || strings.Contains(agent.Refused(filepath.Dir(sent[0])), "two machines") {
		t.Errorf("sent: %v", sent)
	}
}
