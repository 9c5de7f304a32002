package agent_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// The function `refreshing` returns a Puppet that applies, and reports the refreshes `r`. This
// Puppet sends the refreshes that the agent wants to repeat to the channel `told`.
func refreshing(told chan<- []string, r agent.Refreshes) func(*puppet) tutti.Result {
	return func(p *puppet) tutti.Result {
		out := applies(p)
		if err := writeFile(filepath.Join(p.dir, refreshesFile), r); err != nil {
			p.t.Error(err)
		}
		told <- p.spec.Owed
		return out
	}
}

type list = []string

// A refresh is owed until a run has done it, whichever runs come in between.
func TestARefreshIsOwedUntilARunHasDoneIt(t *testing.T) {
	told := make(chan []string, 1)
	l := newLab(t, refreshing(told, agent.Refreshes{Due: list{"Exec[a]", "Service[b]"}}))
	l.start()
	first := l.end(l.job())
	<-told
	owes := func(of ...string) (out []tutti.Owed) {
		for _, resource := range of {
			out = append(out, tutti.Owed{Resource: resource, Run: first.Run})
		}
		return out
	}
	if diff := cmp.Diff(owes("Exec[a]", "Service[b]"), first.Owed); diff != "" {
		t.Errorf("the run that owes: -want +got\n%s", diff)
	}
	for _, tc := range []struct {
		reason string
		mode   tutti.Mode
		says   agent.Refreshes
		repeat list
		owed   []tutti.Owed
	}{
		{"a noop run neither pays nor forgets", tutti.ModeNoop, agent.Refreshes{Over: list{"Exec[a]", "Service[b]"}}, nil, nil},
		{"one is done, the other fails again", tutti.ModeApply, agent.Refreshes{Over: list{"Exec[a]"}}, list{"Exec[a]", "Service[b]"}, owes("Service[b]")},
		{"it is left out", tutti.ModeApply, agent.Refreshes{}, list{"Service[b]"}, owes("Service[b]")},
		{"its change is made again, and it fails", tutti.ModeApply, agent.Refreshes{Due: list{"Service[b]"}}, list{"Service[b]"}, owes("Service[b]")},
		{"it is done", tutti.ModeApply, agent.Refreshes{Over: list{"Service[b]"}}, list{"Service[b]"}, nil},
		{"nothing is owed any more", tutti.ModeApply, agent.Refreshes{}, nil, nil},
	} {
		l.ruby.does(refreshing(told, tc.says))
		got := l.end(l.fleet.Start("deploy", tc.mode))
		if diff := cmp.Diff([]list{tc.repeat}, []list{<-told}); diff != "" {
			t.Errorf("%s: what is repeated: -want +got\n%s", tc.reason, diff)
		}
		if diff := cmp.Diff(tc.owed, got.Owed); diff != "" {
			t.Errorf("%s: what is owed then: -want +got\n%s", tc.reason, diff)
		}
	}
}

// At the end of a run the agent cannot write to the disk, so only the server has the run's result. No other run begins
// until the result is also on disk. Without the result on disk, a restarted agent would count the refreshes of this
// run a second time, after those of later runs.
func TestARunIsNotCountedAgainAfterALaterRun(t *testing.T) {
	for _, tc := range []struct {
		reason     string
		first, run agent.Refreshes
		repeated   list
	}{
		{"the later run owes what the earlier run has done", agent.Refreshes{Over: list{"Service[b]"}}, agent.Refreshes{Due: list{"Service[b]"}}, list{"Service[b]"}},
		{"the later run has done what the earlier run owed", agent.Refreshes{Due: list{"Service[b]"}}, agent.Refreshes{Over: list{"Service[b]"}}, nil},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			told, full := make(chan []string, 4), make(chan string, 1)
			l := newLab(t, func(p *puppet) tutti.Result {
				out := refreshing(told, tc.first)(p)
				path := filepath.Join(p.dir, "log.jsonl") // the agent cannot sync this file
				if err := os.Symlink(path, path); err != nil {
					t.Error(err)
				}
				full <- path
				return out
			})
			l.start()
			earlier := l.end(l.job())
			<-told
			path := <-full
			l.ruby.does(refreshing(told, tc.run))
			got := l.end(l.job())
			if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || !strings.Contains(got.Message, string(earlier.Run)) || l.ruby.started() != 1 {
				t.Errorf("the disk takes nothing yet: %s:%s %q after %d starts", got.Outcome, got.Reason, got.Message, l.ruby.started())
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			got = l.end(l.job())
			<-told
			if _, result, sent := agent.Ended(l.runDir(earlier.Run)); !got.Outcome.Good() || result == nil || result.Outcome != earlier.Outcome || !sent {
				t.Errorf("with room: %s %q; of the earlier run the disk has %+v, sent %t", got.Outcome, got.Message, result, sent)
			}
			l.ruby.does(refreshing(told, agent.Refreshes{}))
			l.start()
			l.end(l.job())
			if diff := cmp.Diff(tc.repeated, <-told); diff != "" {
				t.Errorf("after a restart of the agent, repeated -want +got\n%s", diff)
			}
		})
	}
}

// The process of a run ends while there is no agent. The next agent is killed when it has noted what the run owes, but
// not how the run ended.
func TestAnAgentThatIsKilledOwesARefreshOnce(t *testing.T) {
	told := make(chan []string, 1)
	ends, end := make(chan struct{}), make(chan struct{})
	l := newLab(t, func(p *puppet) tutti.Result {
		out := refreshing(told, agent.Refreshes{Due: list{"Service[b]"}, Over: list{"Exec[a]"}})(p)
		close(ends)
		<-end
		return out
	})
	l.start()
	job := l.job()
	<-ends
	l.kill()
	close(end)
	<-told
	stop := l.line.stopAt(wire.OpResult, false)
	l.start()
	<-stop.reached
	l.kill()
	results, err := filepath.Glob(filepath.Join(l.dir, "runs", "*", "result.json"))
	if err != nil || len(results) != 1 {
		t.Fatal(results, err)
	}
	if err := os.Remove(results[0]); err != nil {
		t.Fatal(err)
	}
	l.ruby.does(refreshing(told, agent.Refreshes{Over: list{"Service[b]"}}))
	l.start()
	first := l.end(job)
	if diff := cmp.Diff([]tutti.Owed{{Resource: "Service[b]", Run: first.Run}}, first.Owed); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	second := l.end(l.job())
	if diff := cmp.Diff(list{"Service[b]"}, <-told); diff != "" || second.Owed != nil {
		t.Errorf("then %v is owed; repeated -want +got\n%s", second.Owed, diff)
	}
}

// The agent knows what a run owes even if the run's marker is damaged.
func TestARunWithADamagedMarkerOwesItsRefreshes(t *testing.T) {
	told, end := make(chan []string, 1), make(chan struct{})
	damaged := make(chan struct{})
	l := newLab(t, func(p *puppet) tutti.Result {
		out := refreshing(told, agent.Refreshes{Due: list{"Service[b]"}})(p)
		damages["truncated"](t, filepath.Join(p.dir, markerFile))
		close(damaged)
		<-end
		return out
	})
	l.start()
	job := l.job()
	<-damaged
	<-told
	l.kill()
	close(end)
	l.start()
	if got := l.end(job); got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery {
		t.Errorf("%s:%s %q", got.Outcome, got.Reason, got.Message)
	}
	l.ruby.does(refreshing(told, agent.Refreshes{}))
	l.end(l.job())
	if diff := cmp.Diff(list{"Service[b]"}, <-told); diff != "" {
		t.Errorf("repeated -want +got\n%s", diff)
	}
}

// The agent cannot find out whether a process of an earlier agent still runs. The agent knows what the run owes. Only a
// run in mode apply owes anything.
func TestARunThatCannotBeAdoptedOwesItsRefreshes(t *testing.T) {
	for mode, repeated := range map[tutti.Mode]list{tutti.ModeApply: {"Service[b]"}, tutti.ModeNoop: nil} {
		t.Run(string(mode), func(t *testing.T) {
			told, end := make(chan []string, 2), make(chan struct{})
			l := newLab(t, func(p *puppet) tutti.Result {
				out := refreshing(told, agent.Refreshes{Due: list{"Service[b]"}})(p)
				<-end
				return out
			})
			l.start()
			job := l.fleet.Start("deploy", mode)
			<-told
			l.kill()
			close(end)
			l.ruby.adoptErr = errors.New("no processes can be read")
			l.start()
			if got := l.end(job); got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || got.Message != l.ruby.adoptErr.Error() {
				t.Errorf("%s:%s %q", got.Outcome, got.Reason, got.Message)
			}
			l.ruby.does(refreshing(told, agent.Refreshes{}))
			l.end(l.job())
			if diff := cmp.Diff(repeated, <-told); diff != "" {
				t.Errorf("repeated -want +got\n%s", diff)
			}
		})
	}
}

// The start of a process fails. The agent cannot know from the error whether Puppet has begun.
func TestARunWhoseStartFailsOwesItsRefreshes(t *testing.T) {
	for _, tc := range []struct {
		reason string
		goesOn bool
		want   tutti.Outcome
	}{
		{"the process goes on", true, tutti.Changed},
		{"the process is gone", false, tutti.Failed},
	} {
		t.Run(tc.reason, func(t *testing.T) {
			told := make(chan []string, 2)
			l := newLab(t, refreshing(told, agent.Refreshes{Due: list{"Service[b]"}}))
			if tc.goesOn {
				l.ruby.lateErr = errors.New("the file pid cannot be read")
			} else {
				l.ruby.startErr = errors.New("the file pid cannot be read")
				l.ruby.leaves = &agent.Refreshes{Due: list{"Service[b]"}}
			}
			l.start()
			if got := l.end(l.job()); got.Outcome != tc.want || tc.want == tutti.Failed && got.Message != "the file pid cannot be read" {
				t.Fatalf("%s:%s %q", got.Outcome, got.Reason, got.Message)
			}
			if tc.goesOn {
				<-told
			}
			l.ruby.mu.Lock()
			l.ruby.startErr, l.ruby.lateErr, l.ruby.leaves = nil, nil, nil
			l.ruby.mu.Unlock()
			l.ruby.does(refreshing(told, agent.Refreshes{}))
			l.end(l.job())
			if diff := cmp.Diff(list{"Service[b]"}, <-told); diff != "" {
				t.Errorf("repeated -want +got\n%s", diff)
			}
		})
	}
}

// A whole foreign run makes its node good, but Puppet does not repeat a refresh.
func TestAForeignRunDoesNotHideWhatIsOwed(t *testing.T) {
	for _, tc := range []struct {
		reason string
		says   agent.Refreshes
		spoil  bool
		whole  bool
	}{
		{"nothing is owed", agent.Refreshes{Over: list{"Service[b]"}}, false, true},
		{"a refresh is owed", agent.Refreshes{Due: list{"Service[b]"}}, false, false},
		{"nobody knows what is owed", agent.Refreshes{Due: list{"Service[b]"}}, true, false},
	} {
		w, opt := witnesses(t)
		told := make(chan []string, 1)
		l := newLab(t, refreshing(told, tc.says))
		l.start(opt, quick)
		l.quiet(w)
		l.end(l.job())
		<-told
		if tc.spoil {
			damages["flipped"](t, filepath.Join(l.dir, agent.OwedFile))
		}
		w.leave(t, wholeReport(t, foreignID(1), 0))
		if f := l.tellsOf(1); f.Whole != tc.whole || (f.Ago > 0) != tc.whole || f.Ago > time.Hour {
			t.Errorf("%s: whole %t, it began %s ago; want whole %t", tc.reason, f.Whole, f.Ago, tc.whole)
		}
		l.kill()
	}
}

// A foreign run does not hide the refreshes of a run that the agent could not count yet.
func TestAForeignRunDoesNotHideWhatIsNotCounted(t *testing.T) {
	w, opt := witnesses(t)
	l := newLab(t, func(p *puppet) tutti.Result {
		out := applies(p)
		if err := os.WriteFile(filepath.Join(p.dir, refreshesFile), []byte("{"), 0o600); err != nil {
			t.Error(err)
		}
		return out
	})
	l.start(opt, quick)
	l.quiet(w)
	run := l.end(l.job())
	if run.Outcome != tutti.Failed || run.Reason != tutti.BecauseMachinery {
		t.Errorf("the run: %s:%s %q", run.Outcome, run.Reason, run.Message)
	}
	w.leave(t, wholeReport(t, foreignID(1), 0))
	if f := l.tellsOf(1); f.Whole {
		t.Error("the foreign run is whole while nobody knows what is owed")
	}
	if err := writeFile(filepath.Join(l.runDir(run.Run), refreshesFile), agent.Refreshes{}); err != nil {
		t.Fatal(err)
	}
	l.ruby.does(applies)
	if got := l.end(l.job()); !got.Outcome.Good() {
		t.Errorf("after that: %s:%s %q", got.Outcome, got.Reason, got.Message)
	}
	w.leave(t, wholeReport(t, foreignID(2), 0))
	if f := l.tellsOf(2); !f.Whole {
		t.Error("the foreign run is not whole, although all runs are counted")
	}
}

// While the debts cannot be read, the node begins no run. A run that has begun before is not good.
func TestDamagedDebts(t *testing.T) {
	for name, damage := range damages {
		t.Run(name, func(t *testing.T) {
			told := make(chan []string, 4)
			l := newLab(t, refreshing(told, agent.Refreshes{Due: list{"Service[b]"}}))
			l.start()
			l.end(l.job())
			<-told
			path := filepath.Join(l.dir, agent.OwedFile)
			during := refreshing(told, agent.Refreshes{Due: list{"Exec[c]"}})
			l.ruby.does(func(p *puppet) tutti.Result {
				damage(t, path)
				return during(p)
			})
			for _, reason := range []string{"damaged while a run went on", "damaged before"} {
				got := l.end(l.job())
				if got.Outcome != tutti.Failed || got.Reason != tutti.BecauseMachinery || !strings.Contains(got.Message, path) || !strings.Contains(got.Message, "remove the file") {
					t.Errorf("%s: %s:%s %q", reason, got.Outcome, got.Reason, got.Message)
				}
			}
			<-told
			if l.ruby.started() != 2 {
				t.Errorf("%d runs were begun, want 2", l.ruby.started())
			}
			if err := os.RemoveAll(path); err != nil {
				t.Fatal(err)
			}
			l.ruby.does(refreshing(told, agent.Refreshes{}))
			got := l.end(l.job())
			if diff := cmp.Diff(list{"Exec[c]"}, <-told); diff != "" || !got.Outcome.Good() {
				t.Errorf("after that: %s %q; repeated -want +got\n%s", got.Outcome, got.Message, diff)
			}
		})
	}
}

// While the disk is full, the agent ends a local run again and again. The agent notes the run only once.
func TestARunIsPostponedOnce(t *testing.T) {
	if got := agent.Postponed("runs/a", "runs/b", "runs/a", "runs/b"); got != 2 {
		t.Errorf("%d runs are postponed, want 2", got)
	}
}
