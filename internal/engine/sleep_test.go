package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

func sleepStep(d time.Duration, after ...tutti.StepName) tutti.Step {
	return tutti.Step{Name: "pause", After: after, Timeout: d, Sleep: &tutti.SleepStep{For: d}}
}

// The function `asleep` returns a fleet with a job at the beginning of a sleep of 30 s. The job began a minute after
// the server started.
func asleep(t *testing.T, mode tutti.Mode, more ...tutti.Step) *fleet {
	t.Helper()
	f := newFleet()
	f.now = f.now.Add(time.Minute)
	f.append(&tutti.JobStarted{Job: "j-1", Mode: mode, Plan: tutti.Plan{Name: "j", Steps: append([]tutti.Step{sleepStep(30 * time.Second)}, more...)}})
	f.settle(t)
	return f
}

// The method `told` returns the events since the job's start, as text.
func (f *fleet) told() []string {
	var out []string
	for _, e := range f.log[1:] {
		switch b := e.Body.(type) {
		case *tutti.StepFinished:
			out = append(out, fmt.Sprintf("%s %s ok %t: %s", e.At.Sub(epoch), b.Step, b.OK, b.Message))
		case *tutti.JobFinished:
			out = append(out, fmt.Sprintf("%s %s", e.At.Sub(epoch), b.Verdict))
		default:
			out = append(out, fmt.Sprintf("%s %s", e.At.Sub(epoch), b.Kind()))
		}
	}
	return out
}

func TestASleep(t *testing.T) {
	cases := map[string]struct {
		reason string
		mode   tutti.Mode
		then   func(t *testing.T, f *fleet)
		want   []string
	}{
		"passes": {
			reason: "it ends when its time is over, not before",
			then: func(t *testing.T, f *fleet) {
				f.now = f.now.Add(30*time.Second - 1)
				f.settle(t)
				f.now = f.now.Add(1)
				f.settle(t)
			},
			want: []string{"1m0s step.started", "1m30s pause ok true: slept 30s", "1m30s succeeded"},
		},
		"noop": {
			reason: "a noop job says what it would do",
			mode:   tutti.ModeNoop,
			then:   func(*testing.T, *fleet) {},
			want:   []string{"1m0s pause ok true: would sleep 30s: noop", "1m0s succeeded"},
		},
		"cancelled": {
			reason: "nobody waits for a cancelled job",
			then: func(t *testing.T, f *fleet) {
				f.now = f.now.Add(12 * time.Second)
				f.append(&tutti.JobCancelled{Job: "j-1"})
				f.settle(t)
			},
			want: []string{"1m0s step.started", "1m12s job.cancelled", "1m12s pause ok false: slept 12s of 30s: the job was cancelled", "1m12s cancelled"},
		},
		"the server restarts": {
			reason: "the time counts from the log, also while no server runs",
			then: func(t *testing.T, f *fleet) {
				f.restart()
				since := f.now.Add(20 * time.Second)
				f.now = since.Add(10*time.Second - 1)
				f.decideAs(t, engine.View{Since: since})
				f.now = f.now.Add(1)
				f.decideAs(t, engine.View{Since: since})
			},
			want: []string{"1m0s step.started", "1m30s pause ok true: slept 30s", "1m30s succeeded"},
		},
		"the server restarts late": {
			reason: "the time was over while no server ran",
			then: func(t *testing.T, f *fleet) {
				f.restart()
				f.now = f.now.Add(time.Hour)
				f.decideAs(t, engine.View{Since: f.now})
			},
			want: []string{"1m0s step.started", "1h1m0s pause ok true: slept 30s", "1h1m0s succeeded"},
		},
		"the clock was ahead": {
			reason: "a beginning in a time to come is the beginning of this server",
			then: func(t *testing.T, f *fleet) {
				f.restart()
				since := f.now.Add(-time.Hour)
				f.now = since.Add(30*time.Second - 1)
				f.decideAs(t, engine.View{Since: since})
				f.now = f.now.Add(1)
				f.decideAs(t, engine.View{Since: since})
			},
			want: []string{"1m0s step.started", "-58m30s pause ok true: slept 30s", "-58m30s succeeded"},
		},
		"no run may begin": {
			reason: "it is no run: neither a full disk nor a pause keeps it awake",
			then: func(t *testing.T, f *fleet) {
				f.now = f.now.Add(30 * time.Second)
				f.decideAs(t, engine.View{Since: epoch, Hold: true})
			},
			want: []string{"1m0s step.started", "1m30s pause ok true: slept 30s", "1m30s succeeded"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := asleep(t, tc.mode)
			tc.then(t, f)
			if diff := cmp.Diff(tc.want, f.told()); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

// decideAs appends the events that a server with this view decides.
func (f *fleet) decideAs(t *testing.T, v engine.View) {
	t.Helper()
	v.Now, v.Seen, v.Silence = f.now, f.seen, f.silence
	for range 10 {
		bodies := f.state.Decide(v)
		if len(bodies) == 0 {
			return
		}
		for _, b := range bodies {
			f.append(b)
		}
	}
	t.Fatalf("the engine still decides: %v", f.state.Decide(v))
}

// Steps after a sleep wait for the sleep, and the sleep waits for the steps before it.
func TestASleepHasItsPlaceInThePlan(t *testing.T) {
	f := newFleet()
	f.append(&tutti.JobStarted{
		Job: "j-1", Plan: tutti.Plan{Name: "j", Steps: []tutti.Step{run("first"), sleepStep(30*time.Second, "first"), run("last", "pause")}},
		Targets: map[tutti.StepName][]tutti.NodeName{"first": {"web-01"}, "last": {"web-01"}},
	})
	step := func(name tutti.StepName) engine.StepState { return f.state.Jobs["j-1"].Step(name).State }
	f.settle(t)
	if step("pause") != engine.Pending {
		t.Errorf("it is %s before the step before it has ended", step("pause"))
	}
	f.finish(f.state.Active["web-01"], tutti.Result{Outcome: tutti.Changed})
	f.settle(t)
	if step("pause") != engine.Active || len(f.state.Active) != 0 {
		t.Errorf("it is %s, and %d nodes run", step("pause"), len(f.state.Active))
	}
	f.now = f.now.Add(30 * time.Second)
	f.settle(t)
	if step("pause") != engine.Done || f.wants["last/web-01/1"] != 1 {
		t.Errorf("it is %s, wanted %v", step("pause"), f.wants)
	}
}
