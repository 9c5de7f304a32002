package cli

import (
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `progress` is the state of a watched job, after the events that were received so far. It folds the
// events in the same way as the server. It also knows from live messages what happens inside the runs.
type progress struct {
	mu    sync.Mutex // needed because one goroutine may read while another goroutine calls the method `apply`
	state *engine.State
	told  []tutti.Event // the job's events received so far, in order
	again int           // after a new connection the server sends the events of `told` again; `again` is how many it has sent so far
	id    tutti.JobID
	live  map[tutti.RunID]*liveRun
	said  saidFailures
	note  string // the last message about the job as a whole
}

// liveRun is what a run is doing now.
type liveRun struct {
	phase    string
	resource string
	waiting  string // the Puppet that has the lock
	since    time.Time
	done     int
	changed  int
	failed   int
	total    int
}

func newProgress() *progress {
	return &progress{state: engine.NewState(), live: map[tutti.RunID]*liveRun{}, said: saidFailures{}}
}

// The method `job` returns the job. Before the first event, the job is empty.
func (p *progress) job() *engine.Job {
	if j := p.state.Jobs[p.id]; j != nil {
		return j
	}
	return &engine.Job{}
}

// The method `begin` is called before the server sends the job's events again, from the first event.
func (p *progress) begin() { p.again = 0 }

// The method `apply` folds one item, and reports whether the item was new. A server that was restored from a
// backup lacks the last events, and may send other events in their place. The method then drops the events that
// the server no longer has.
func (p *progress) apply(w api.Watched) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.Live != nil {
		p.applyLive(*w.Live)
		return true
	}
	if w.Event == nil { // an item that only a later release knows
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
	if l.Run == "" { // a message about the job as a whole
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

// The method `run` returns the run to which an event belongs, or nil.
func (p *progress) run(e tutti.Event) *engine.Run {
	if tutti.ScopeOf(e.Body.Kind()) != tutti.ScopeRun {
		return nil
	}
	return p.state.Runs[tutti.RunID(e.Body.ID())]
}

// The method `step` returns a step of the job by its name. If the plan does not have the step, the returned step
// has no kind.
func (p *progress) step(name tutti.StepName) tutti.Step {
	if st := p.job().Step(name); st != nil {
		return st.Step
	}
	return tutti.Step{Name: name}
}
