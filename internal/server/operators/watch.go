package operators

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
)

// WatchJob implements tutti.Jobs. WatchJob reads the log itself, and reads older events from the snapshot. WatchJob
// begins at the start of the job, so that a watcher that comes back misses nothing. WatchJob yields an event only
// after readers know this event. So a watcher that has seen the end of a job finds the verdict in the list of jobs.
func (s *Operators) WatchJob(ctx context.Context, in api.WatchJob, yield func(api.Watched) error) error {
	filter := jobFilter{runs: map[tutti.RunID]bool{}}
	var from uint64
	goesOn, needed := false, false
	err := s.Look(ctx, func(v explain.View) error {
		job, err := v.Job(in.Job, v.KeepJobs)
		if err != nil {
			return err
		}
		filter.job, from, goesOn = job.ID, job.Seq-1, !job.Ended()
		needed = goesOn && in.Follow && job.Diff != nil && job.By == tutti.Actor(ctx) // a diff needs somebody who sees its result
		return nil
	})
	if err != nil {
		return err
	}
	if needed {
		defer s.Viewers.Enter(filter.job)()
	}
	live, stop := s.Hub.Subscribe(filter.job)
	defer stop()
	for {
		changed := s.Writer.Appended()
		var seen uint64 // the last event that readers know
		if err := s.Look(ctx, func(v explain.View) error { seen = v.Seq; return nil }); err != nil {
			return brokenOff(ctx, err)
		}
		for e, err := range s.Past.HistoryInTurns(ctx, from) {
			if err != nil {
				return brokenOff(ctx, err)
			}
			if e.Seq > seen {
				break
			}
			from = e.Seq
			if !filter.admits(e) {
				continue
			}
			if err := yield(api.Watched{Event: &e}); err != nil {
				return err
			}
			// A caller who does not follow wants all known events. Some events come after the job's
			// end, because a node can report a run that the server has given up.
			if _, over := e.Body.(*tutti.JobFinished); over && in.Follow {
				return nil
			}
		}
		if full := s.Opts.Space(); goesOn && full != nil {
			if err := yield(api.Watched{Live: &tutti.Live{At: time.Now().UTC(), Message: full.Error()}}); err != nil {
				return err
			}
		}
		goesOn = false // this reason comes only once; if the reason changes, it comes as a live event (space.go)
		if !in.Follow {
			return nil
		}
		if err := s.pass(ctx, live, changed, yield); err != nil {
			return err
		}
	}
}

// The method `pass` yields live events until the log has grown.
func (s *Operators) pass(ctx context.Context, live <-chan tutti.Live, changed <-chan struct{}, yield func(api.Watched) error) error {
	for {
		select {
		case <-changed:
			return nil
		case l := <-live:
			if err := yield(api.Watched{Live: &l}); err != nil {
				return err
			}
		case <-s.Writer.Ended():
			return tutti.Errorf(tutti.CodeUnavailable, "the server stopped")
		case <-ctx.Done():
			// Either the watcher has disconnected, or this server ends and the watcher must come back.
			return brokenOff(ctx, tutti.Wrap(tutti.CodeUnavailable, context.Cause(ctx), "the watch ended before the job"))
		}
	}
}

// brokenOff returns why a watch ended. If the operator was revoked, the reason is the cause of the watcher's context.
// In all other cases the reason is err.
func brokenOff(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); tutti.CodeOf(cause) == tutti.CodeUnauthenticated {
		return cause
	}
	return err
}

// jobFilter selects the events of one job. The filter learns the runs of the job from the orders that pass the filter.
type jobFilter struct {
	job  tutti.JobID
	runs map[tutti.RunID]bool
}

func (f jobFilter) admits(e tutti.Event) bool {
	if b, ok := e.Body.(*tutti.RunWanted); ok && b.Order.Job == f.job {
		f.runs[b.Order.Run] = true
	}
	switch tutti.ScopeOf(e.Body.Kind()) {
	case tutti.ScopeJob:
		return e.Body.ID() == string(f.job)
	case tutti.ScopeRun:
		return f.runs[tutti.RunID(e.Body.ID())]
	case tutti.ScopeNode, tutti.ScopeNone: // these events belong to no job
	}
	return false
}
