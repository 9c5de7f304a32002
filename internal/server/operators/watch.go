package operators

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/explain"
)

// WatchJob implements tutti.Jobs. It reads the log itself (and the older events that only
// a snapshot has), from the job's start on, so that a watcher that comes
// back misses nothing.
func (s *Operators) WatchJob(ctx context.Context, in api.WatchJob, yield func(api.Watched) error) error {
	filter := jobFilter{runs: map[tutti.RunID]bool{}}
	var from uint64
	goesOn := false
	err := s.Look(ctx, func(v explain.View) error {
		job, err := v.Job(in.Job, v.KeepJobs)
		if err != nil {
			return err
		}
		filter.job, from, goesOn = job.ID, job.Seq-1, !job.Ended()
		return nil
	})
	if err != nil {
		return err
	}
	live, stop := s.Hub.Subscribe(filter.job)
	defer stop()
	for {
		changed := s.Writer.Appended()
		for e, err := range s.Past.HistoryInTurns(ctx, from) {
			if err != nil {
				return brokenOff(ctx, err)
			}
			from = e.Seq
			if !filter.admits(e) {
				continue
			}
			if err := yield(api.Watched{Event: &e}); err != nil {
				return err
			}
			// A caller who does not follow wants all that is known, including what a node said after
			// it was given up.
			if _, over := e.Body.(*tutti.JobFinished); over && in.Follow {
				return nil
			}
		}
		if full := s.Opts.Space(); goesOn && full != nil {
			if err := yield(api.Watched{Live: &tutti.Live{At: time.Now().UTC(), Message: full.Error()}}); err != nil {
				return err
			}
		}
		goesOn = false // said once, then again when it changes
		if !in.Follow {
			return nil
		}
		if err := s.pass(ctx, live, changed, yield); err != nil {
			return err
		}
	}
}

// pass hands on live events until the log has grown.
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
			// The watcher is gone, or this server ends and the watcher has to come back.
			return brokenOff(ctx, tutti.Wrap(tutti.CodeUnavailable, context.Cause(ctx), "the watch ended before the job"))
		}
	}
}

// brokenOff returns why a watch ended: the cause of the watcher's context if they were
// revoked, otherwise err.
func brokenOff(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); tutti.CodeOf(cause) == tutti.CodeUnauthenticated {
		return cause
	}
	return err
}

// jobFilter admits the events of one job. It knows the job's runs from the orders
// that it has seen.
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
	case tutti.ScopeNode, tutti.ScopeNone: // of no job
	}
	return false
}
