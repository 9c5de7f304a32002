package agent_test

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

// The function `serves` is the option that lets root on the machine begin runs.
func serves(o *agent.Options) { o.ServeLocal = true }

// The method `alone` returns the content of the node's AloneFile.
func (l *lab) alone() agent.Alone {
	l.t.Helper()
	known, err := agent.ReadAlone(l.dir)
	if err != nil {
		l.t.Fatal(err)
	}
	return known
}

// The method `await` waits until a local run has ended and is in the outbox.
func (l *lab) await(run tutti.RunID) tutti.Result {
	l.t.Helper()
	var ended *tutti.Result
	l.line.wait("the end of local run "+string(run), func() bool {
		_, result, told := agent.Ended(l.runDir(run))
		ended = result
		return result != nil && told
	})
	if ended == nil {
		l.t.FailNow()
	}
	return *ended
}

// The method `asked` begins a local run in the way that a person does.
func (l *lab) asked(mode tutti.Mode) tutti.RunID {
	l.t.Helper()
	run, err := agent.AskLocal(l.t.Context(), l.dir, mode)
	if err != nil {
		l.t.Fatal(err)
	}
	return run
}

// The method `served` starts an agent and waits until the server has answered the agent's claim.
func (l *lab) served() {
	l.t.Helper()
	before := len(l.line.payloads(wire.OpClaim))
	l.start(impatient, serves)
	l.line.wait("the first claim", func() bool { return len(l.line.payloads(wire.OpClaim)) > before })
}

var dbX = ask{"op": "value", "key": "db/x"}

// TestALocalRun: a local run uses the code and the answers of the earlier run. When the server is back,
// the agent reports the local run. The report says that both runs had the same basis.
func TestALocalRun(t *testing.T) {
	l := newLab(t, func(p *puppet) tutti.Result {
		p.say(dbX)
		out := applies(p)
		if r := p.say(ask{"op": "publish", "key": "db/x", "value": 1}); !r.OK {
			t.Errorf("publish: %s", r.Error)
		}
		return out
	})
	l.served()
	if _, err := agent.AskLocal(t.Context(), l.dir, tutti.ModeApply); tutti.CodeOf(err) != tutti.CodeNotFound {
		t.Errorf("before there was a run: %v, want not_found", err)
	}
	ordered := l.end(l.job())
	known := l.alone()
	if known.Applied == nil || known.Applied.Run != ordered.Run || known.Told == nil {
		t.Fatalf("after a run the node knows %+v", known)
	}
	l.line.sever()
	l.ruby.does(func(p *puppet) tutti.Result {
		if r := p.say(dbX); !r.OK || !r.Degraded || r.Found {
			t.Errorf("the last known answer: %+v", r)
		}
		if r := p.say(ask{"op": "published", "key": "db/x", "value": 1}); !r.OK || r.Found {
			t.Errorf("published: %+v", r)
		}
		out := applies(p)
		if r := p.say(ask{"op": "publish", "key": "db/x", "value": 2}); r.Code != tutti.CodeRefused {
			t.Errorf("publish: %+v, want refused", r)
		}
		out.Counts = tutti.Counts{Total: 2, Changed: 1}
		return out
	})
	again := l.asked(tutti.ModeApply)
	if r := l.await(again); r.Outcome != tutti.Changed || !r.Degraded {
		t.Errorf("the same again: %+v", r)
	}
	l.line.mend()
	l.line.wait("the server to know of the local run", func() bool { return l.view().LastRun == again })
	n := l.view()
	if n.Local == nil || n.Local.As != ordered.Run || n.Local.Safety || n.Outcome != tutti.Changed {
		t.Errorf("the server knows %+v of it, want as %s", n.Local, ordered.Run)
	}
	if shown, err := l.fleet.ShowNode(servertest.Operator(), "db-01"); err != nil || shown.Standing.Run == nil || shown.Standing.Run.Run != ordered.Run {
		t.Errorf("after the same again the node is judged by %+v, %v, want %s", shown.Standing, err, ordered.Run)
	}
	values, err := l.fleet.ListValues(servertest.Operator(), "db/x")
	if err != nil || len(values) != 1 || string(values[0].Value) != "1" {
		t.Errorf("values %+v, %v, want the one of the ordered run", values, err)
	}
}

// TestWhatANoopRunWasTold: a noop run gets answers from the overlay of its own job. No node has
// published these answers. Later runs do not use these answers as last known answers.
func TestWhatANoopRunWasTold(t *testing.T) {
	questions := []ask{dbX, {"op": "collect", "type": "Database"}}
	l := newLab(t, applies)
	l.served()
	l.end(l.job())
	l.ruby.does(func(p *puppet) tutti.Result {
		for _, q := range questions {
			if r := p.say(q); !r.OK {
				t.Errorf("the server does not answer %v: %+v", q, r)
			}
		}
		return applies(p)
	})
	l.end(l.fleet.Start("deploy", tutti.ModeNoop))
	l.ruby.does(func(p *puppet) tutti.Result {
		for _, q := range questions {
			if r := p.say(q); r.Code != tutti.CodeUnavailable {
				t.Errorf("a local run has what a noop run was told to %v: %+v", q, r)
			}
		}
		return tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile, Phase: "compile"}
	})
	if r := l.await(l.asked(tutti.ModeApply)); r.Outcome != tutti.Waiting {
		t.Errorf("result %+v, want waiting", r)
	}
}

// TestALocalRunWithoutAnAnswer: a local run ends if it asks a question that was never answered.
// The run ends even if the server could answer.
func TestALocalRunWithoutAnAnswer(t *testing.T) {
	l := newLab(t, applies)
	l.served()
	l.end(l.job())
	l.ruby.does(func(p *puppet) tutti.Result {
		if r := p.say(dbX); r.Code != tutti.CodeUnavailable {
			t.Errorf("a question that was never answered: %+v, want unavailable", r)
		}
		return tutti.Result{Outcome: tutti.Failed, Reason: tutti.BecauseCompile, Phase: "compile"}
	})
	run := l.asked(tutti.ModeApply)
	if r := l.await(run); r.Outcome != tutti.Waiting {
		t.Errorf("result %+v, want waiting", r)
	}
	l.line.wait("the server to know of it", func() bool { return l.view().LastRun == run })
	if shown, err := l.fleet.ShowNode(servertest.Operator(), "db-01"); err != nil || shown.Standing.State != api.NodeGood {
		t.Errorf("after a local run that changed nothing the node is %+v, %v, want good", shown.Standing, err)
	}
}

// TestOtherAnswersAreNotTheSameAgain: a local run with other answers or another catalog is not a
// repetition of the earlier run. Other facts lead to another catalog. If the local run is not a
// repetition, the agent reports that the node may have changed.
func TestOtherAnswersAreNotTheSameAgain(t *testing.T) {
	for name, change := range map[string]struct {
		key, catalog string
		same         bool
	}{
		"the same":        {"db/x", "catalog", true},
		"other answers":   {"db/y", "catalog", false},
		"another catalog": {"db/x", "catalog by other facts", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			reads := func(key, catalog string) func(p *puppet) tutti.Result {
				return func(p *puppet) tutti.Result {
					p.say(ask{"op": "value", "key": key})
					p.say(ask{"op": "gate", "catalog": ask{"digest": tutti.DigestOf([]byte(catalog))}})
					out := changed()
					out.Counts = tutti.Counts{Total: 2, Changed: 1}
					return out
				}
			}
			l := newLab(t, reads("db/y", "catalog"))
			l.served()
			l.end(l.job()) // run a job so that each question has an answer
			l.ruby.does(reads("db/x", "catalog"))
			ordered := l.end(l.job())
			l.line.sever()
			l.ruby.does(reads(change.key, change.catalog))
			run := l.asked(tutti.ModeApply)
			l.await(run)
			l.line.mend()
			l.line.wait("the server to know of the local run", func() bool { return l.view().LastRun == run })
			if as := l.view().Local.As; (as == ordered.Run) != change.same || as != "" && !change.same {
				t.Errorf("it is told as %q; the last run is %s", as, ordered.Run)
			}
			shown, err := l.fleet.ShowNode(servertest.Operator(), "db-01")
			stale := err == nil && shown.Standing.State == api.NodeStale && strings.Contains(shown.Standing.Why, "run by a person on the node "+string(run))
			if stale == change.same {
				t.Errorf("the node is %+v, %v", shown.Standing, err)
			}
		})
	}
}

// TestALocalRunThatWouldPublish: a local run publishes nothing. If the run has another value than the node has published,
// the node becomes stale, although the run had the same catalog. The other nodes still read the old value.
func TestALocalRunThatWouldPublish(t *testing.T) {
	const key = "db/x"
	secret := func(value string) ask {
		return ask{"op": "published", "key": key, "value": value, "sensitive": true, "for": []string{"group:db"}}
	}
	value := func(value any) ask { return ask{"op": "published", "key": key, "value": value} }
	withdrawn := ask{"op": "published", "key": key, "withdraw": true}
	for name, tc := range map[string]struct {
		before, local ask // what the ordered run publishes, and what the local run would publish
		good          bool
	}{
		"the same":                    {value(1), value(1), true},
		"another value":               {value(1), value(2), false},
		"another type":                {value(1), value("1"), false},
		"the same hash":               {value(ask{"a": 1, "b": 2.5}), value(ask{"b": 2.5, "a": 1}), true},
		"a key that nobody asked for": {nil, value(1), false},
		"nothing to withdraw":         {withdrawn, withdrawn, true},
		"something to withdraw":       {value(1), withdrawn, false},
		"published again":             {withdrawn, value(1), false},
		"no file to publish":          {value(1), value(nil), false},
		"an older module":             {value(1), ask{"op": "published", "key": key}, false},
		"the same secret":             {secret("canary-1"), secret("canary-1"), true},
		"another secret":              {secret("canary-1"), secret("canary-2"), false},
		"a secret in place of it":     {value("canary-1"), secret("canary-1"), false},
		"no secret any more":          {secret("canary-1"), value("canary-1"), false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, func(p *puppet) tutti.Result {
				p.say(ask{"op": "gate", "catalog": ask{"digest": tutti.DigestOf([]byte("catalog"))}, "values": []string{key}})
				if tc.before != nil {
					if r := p.say(tc.before); !r.OK || r.Found {
						t.Errorf("published: %+v", r)
					}
					if publish := maps.Clone(tc.before); publish["withdraw"] == nil {
						publish["op"] = "publish"
						if r := p.say(publish); !r.OK {
							t.Errorf("publish: %+v", r)
						}
					}
				}
				return changed()
			})
			l.fleet.Push(strings.Replace(onePlan, "\ngroups: {", "\nsecrets: {recovery: "+recovery+"}\ngroups: {", 1))
			l.start(impatient, serves, opening)
			ordered := l.end(l.job())
			l.ruby.does(func(p *puppet) tutti.Result {
				p.say(ask{"op": "gate", "catalog": ask{"digest": tutti.DigestOf([]byte("catalog"))}, "values": []string{key}})
				if r := p.say(tc.local); !r.OK || !r.Local {
					t.Errorf("published: %+v", r)
				}
				out := changed()
				out.Counts = tutti.Counts{Total: 2, Changed: 1}
				return out
			})
			run := l.asked(tutti.ModeApply)
			l.await(run)
			l.line.wait("the server to know of the local run", func() bool { return l.view().LastRun == run })
			if how := l.view().Local; (how.As == ordered.Run) != tc.good || slices.Contains(how.Unpublished, key) == tc.good {
				t.Errorf("it is told as %+v; the last run is %s", how, ordered.Run)
			}
			shown, err := l.fleet.ShowNode(servertest.Operator(), "db-01")
			stale := err == nil && shown.Standing.State == api.NodeStale && strings.Contains(shown.Standing.Why, key)
			if stale == tc.good {
				t.Errorf("the node is %+v, %v", shown.Standing, err)
			}
			l.kill() // after this, the files of the agent do not change any more
			if found := l.holding("canary"); tc.before["sensitive"] == true && tc.local["sensitive"] == true && len(found) > 0 {
				t.Errorf("the secret is in %q", found)
			}
		})
	}
}

// TestWhenASafetyRunIsDue: a safety run is due a certain time after the last contact with the server
// or the last safety run. The nodes spread their runs over some time.
func TestWhenASafetyRunIsDue(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	base := agent.Alone{Told: &tutti.Alone{Safety: 12 * time.Hour}, Applied: &tutti.Order{}, Reached: now, Started: now.Add(-time.Hour)}
	for name, tt := range map[string]struct {
		change func(k *agent.Alone)
		from   time.Time // the earliest allowed time; zero if no run is due
		none   string
	}{
		"the server was reached":        {func(*agent.Alone) {}, now.Add(12 * time.Hour), ""},
		"one was made since":            {func(k *agent.Alone) { k.Ran = now.Add(13 * time.Hour) }, now.Add(25 * time.Hour), ""},
		"reached again since":           {func(k *agent.Alone) { k.Ran = now.Add(-time.Hour) }, now.Add(12 * time.Hour), ""},
		"the machine was without power": {func(k *agent.Alone) { k.Started = now.Add(100 * time.Hour) }, now.Add(100*time.Hour + time.Minute), ""},
		"the fleet file says never":     {func(k *agent.Alone) { k.Told = &tutti.Alone{Why: "never"} }, time.Time{}, "never"},
		"an older server":               {func(k *agent.Alone) { k.Told = nil }, time.Time{}, "has not said"},
		"removed":                       {func(k *agent.Alone) { k.Denied = "removed" }, time.Time{}, "removed"},
		"nothing was applied":           {func(k *agent.Alone) { k.Applied = nil }, time.Time{}, "no full run"},
	} {
		known := base
		tt.change(&known)
		spreads := map[time.Duration]bool{}
		for i := range 100 {
			at, none := known.Safety(tutti.NodeName(fmt.Sprintf("node-%02d", i)))
			if none != tt.none && (tt.none == "" || !strings.Contains(none, tt.none)) {
				t.Fatalf("%s: none because %q, want %q", name, none, tt.none)
			}
			if spread := at.Sub(tt.from); none == "" && (spread < 0 || spread >= 3*time.Hour) {
				t.Errorf("%s: at %s, want within three hours from %s", name, at, tt.from)
			}
			spreads[at.Sub(tt.from)] = true
		}
		if tt.none == "" && len(spreads) < 90 {
			t.Errorf("%s: 100 nodes have %d times", name, len(spreads))
		}
	}
}

// TestASafetyRun: a node without its server makes one safety run by itself, even if its agent is killed
// during the run.
func TestASafetyRun(t *testing.T) {
	for name, tt := range map[string]struct {
		change func(l *lab, known *agent.Alone)
		runs   bool
	}{
		"long away":       {func(*lab, *agent.Alone) {}, true},
		"an older server": {func(_ *lab, k *agent.Alone) { k.Told = nil }, false},
		"removed":         {func(_ *lab, k *agent.Alone) { k.Denied = "removed" }, false},
		"a clock that was set back": {func(_ *lab, k *agent.Alone) {
			k.Told, k.Reached = &tutti.Alone{Safety: 10 * time.Minute}, time.Now().Add(1000*time.Hour)
		}, false},
		"held by a job": {func(l *lab, _ *agent.Alone) {
			note := map[string]any{"job": "deploy-1", "expires": time.Now().Add(time.Hour), "length": time.Hour}
			if err := agent.WriteSealed(filepath.Join(l.dir, agent.LeaseFile), note); err != nil {
				l.t.Fatal(err)
			}
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLab(t, applies)
			l.start(impatient)
			ordered := l.end(l.job())
			l.kill()
			known := l.alone()
			known.Told, known.Reached = &tutti.Alone{Safety: time.Second}, time.Now().Add(-time.Hour)
			tt.change(l, &known)
			if err := agent.WriteSealed(filepath.Join(l.dir, agent.AloneFile), known); err != nil {
				t.Fatal(err)
			}
			l.line.sever()
			begun := make(chan *puppet, 10)
			l.ruby.does(func(p *puppet) tutti.Result { begun <- p; return applies(p) })
			l.start(impatient)
			if !tt.runs {
				l.line.wait("four exchanges", func() bool { return len(l.line.payloads(wire.OpHello)) >= 4 })
				if n := len(begun); n != 0 {
					t.Errorf("%d safety runs, want none", n)
				}
				return
			}
			p := <-begun
			how, _, _ := agent.Ended(p.dir)
			if how == nil || !how.Safety || !how.Away || p.spec.Order.Job != "" || !p.spec.Order.FreshFacts || p.spec.Order.Code != known.Applied.Code {
				t.Fatalf("run %+v, local %+v", p.spec.Order, how)
			}
			l.kill() // the next agent follows this run and begins no other safety run
			after := l.alone()
			if after.Ran.Before(known.Reached) || after.Ran.IsZero() {
				t.Errorf("it is not noted that it has begun: %+v", after)
			}
			after.Told = &tutti.Alone{Safety: time.Hour}
			if err := agent.WriteSealed(filepath.Join(l.dir, agent.AloneFile), after); err != nil {
				t.Fatal(err)
			}
			l.start(impatient)
			if r := l.await(p.spec.Order.Run); r.Outcome != tutti.Changed || l.ruby.started() != 2 {
				t.Errorf("result %+v after %d starts", r, l.ruby.started())
			}
			l.line.mend()
			l.line.wait("the server to know of the safety run", func() bool { n := l.view(); return n.Local != nil && n.Local.Safety })
			if n := l.view(); n.Local.As != ordered.Run {
				t.Errorf("as %s, want %s", n.Local.As, ordered.Run)
			}
			l.line.wait("the word of the server that is back", func() bool {
				got := l.alone().Told
				return got != nil && got.Safety == 0 && got.Why != ""
			})
		})
	}
}

// TestWhoIsRefusedMakesNoSafetyRun: if the server refuses the node's claim or exchange, the node makes
// no safety run until the server accepts it again.
func TestWhoIsRefusedMakesNoSafetyRun(t *testing.T) {
	for _, op := range []string{wire.OpClaim, wire.OpHello} {
		l := newLab(t, applies)
		l.start(impatient)
		l.end(l.job())
		l.kill()
		l.line.refuseWith(op, tutti.Errorf(tutti.CodeRefused, "two machines"))
		l.start(impatient)
		l.line.wait("the refusal to be kept", func() bool { return strings.Contains(l.alone().Denied, "two machines") })
		l.kill()
		l.line.refuseWith(op, nil)
		l.start(impatient)
		l.line.wait("the server to take it again", func() bool { return l.alone().Denied == "" })
	}
}

// TestAConflictIsKnownByAResult: if the server refuses a machine's results, the machine makes no
// claim. The machine makes no safety run during this time. The machine sends the same results again
// when the server accepts it as the node again.
func TestAConflictIsKnownByAResult(t *testing.T) {
	l := newLab(t, applies)
	l.line.refuseWith(wire.OpResult, tutti.Errorf(tutti.CodeUnauthenticated, "two machines"))
	l.start(impatient)
	job := l.job()
	l.line.until(wire.OpResult, 2) // the agent has noted the first refusal
	if at, none := l.alone().Safety("db-01"); !strings.Contains(none, "two machines") {
		t.Errorf("it makes a safety run at %s, or none because %q", at, none)
	}
	l.line.refuseWith(wire.OpResult, nil)
	if r := l.end(job); !r.Outcome.Good() {
		t.Errorf("told later: %+v", r)
	}
	l.line.wait("the server to take it again", func() bool { return l.alone().Denied == "" })
}

// TestOneRunAtATime: a person's request is refused while another run executes. No
// run begins during another run.
func TestOneRunAtATime(t *testing.T) {
	release := make(chan struct{})
	l := newLab(t, applies)
	l.served()
	l.end(l.job())
	starts := make(chan *puppet, 2)
	l.ruby.does(func(p *puppet) tutti.Result { starts <- p; <-release; return applies(p) })
	first := l.asked(tutti.ModeNoop)
	if p := <-starts; p.spec.Order.Run != first || p.spec.Order.Mode != tutti.ModeNoop {
		t.Errorf("run %+v", p.spec.Order)
	}
	if _, err := agent.AskLocal(t.Context(), l.dir, tutti.ModeApply); tutti.CodeOf(err) != tutti.CodeConflict || !strings.Contains(err.Error(), string(first)) {
		t.Errorf("a second one: %v, want a conflict with %s", err, first)
	}
	close(release)
	l.await(first)
	if _, err := agent.AskLocal(t.Context(), l.dir, tutti.ModeCompile); tutti.CodeOf(err) != tutti.CodeInvalid {
		t.Errorf("mode compile: %v, want invalid", err)
	}
	l.kill()
	if _, err := agent.AskLocal(t.Context(), l.dir, tutti.ModeApply); tutti.CodeOf(err) != tutti.CodeUnavailable {
		t.Errorf("without an agent: %v, want unavailable", err)
	}
}

// TestALocalRunNeedsItsCode: if the code is damaged and the server is away, the local run fails and
// no Puppet starts.
func TestALocalRunNeedsItsCode(t *testing.T) {
	l := newLab(t, applies)
	l.served()
	l.end(l.job())
	code := filepath.Join(l.dir, "code", l.alone().Applied.Code.Hex()+".manifest")
	if err := os.WriteFile(code, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.line.sever()
	if r := l.await(l.asked(tutti.ModeApply)); r.Outcome != tutti.Failed || r.Reason != tutti.BecauseMachinery || l.ruby.started() != 1 {
		t.Errorf("result %+v after %d starts, want failed:machinery and no second start", r, l.ruby.started())
	}
}
