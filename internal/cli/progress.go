package cli

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// progress is the state of a job by the events received so far. It has the same fold with which the server executes
// the job, and what happens inside the runs.
type progress struct {
	mu    sync.Mutex // for readers in other goroutines than apply's
	state *engine.State
	told  []tutti.Event // the job's events, in order
	again int           // how many of these events came again since the last begin
	id    tutti.JobID
	live  map[tutti.RunID]*liveRun
	said  saidFailures
	note  string // the last message about the job itself
}

// liveRun is what a run does now.
type liveRun struct {
	phase    string
	resource string
	waiting  string // what holds the lock
	since    time.Time
	done     int
	changed  int
	failed   int
	total    int
}

func newProgress() *progress {
	return &progress{state: engine.NewState(), live: map[tutti.RunID]*liveRun{}, said: saidFailures{}}
}

// job returns the job, or an empty one before its first event.
func (p *progress) job() *engine.Job {
	if j := p.state.Jobs[p.id]; j != nil {
		return j
	}
	return &engine.Job{}
}

// begin expects the job's events from the start again.
func (p *progress) begin() { p.again = 0 }

// apply folds one item and reports whether it was new. A server that was
// restored from a backup sends different events from some event on. Events that the server no
// longer has are dropped.
func (p *progress) apply(w api.Watched) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.Live != nil {
		p.applyLive(*w.Live)
		return true
	}
	if w.Event == nil { // something that only a later release knows
		return false
	}
	e := *w.Event
	if p.again < len(p.told) {
		if was := p.told[p.again]; was.Seq == e.Seq && was.At.Equal(e.At) {
			p.again++
			return false
		}
		p.told = p.told[:p.again]
		p.state = engine.NewState()
		for _, e := range p.told {
			p.state.Apply(e)
		}
	}
	p.told = append(p.told, e)
	p.again = len(p.told)
	p.state.Apply(e)
	if b, ok := e.Body.(*tutti.JobStarted); ok {
		p.id = b.Job
	}
	return true
}

func (p *progress) applyLive(l tutti.Live) {
	if l.Run == "" { // a message about the job itself
		p.note = l.Message
		return
	}
	r := p.live[l.Run]
	if r == nil {
		r = &liveRun{}
		p.live[l.Run] = r
	}
	switch {
	case l.Phase != "":
		r.phase, r.since, r.waiting = l.Phase, l.At, l.Message
	case l.Total > 0:
		r.total = l.Total
	case l.Done:
		r.done++
		if l.Changed {
			r.changed++
		}
		if l.Failed {
			r.failed++
		}
	case l.Resource != "":
		r.resource, r.since = l.Resource, l.At
	}
}

// run returns the run that an event is about, or nil.
func (p *progress) run(e tutti.Event) *engine.Run {
	if tutti.ScopeOf(e.Body.Kind()) != tutti.ScopeRun {
		return nil
	}
	return p.state.Runs[tutti.RunID(e.Body.ID())]
}

// step returns a step of the job. A step that the plan does not have has no kind.
func (p *progress) step(name tutti.StepName) tutti.Step {
	if st := p.job().Step(name); st != nil {
		return st.Step
	}
	return tutti.Step{Name: name}
}
