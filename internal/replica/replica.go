package replica

import (
	"context"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/watch"
)

const (
	// holdLimit is how long readers may keep one version. A reader normally needs milliseconds.
	// After holdLimit the slow readers keep this version, and all new readers get a new fold of
	// the log.
	holdLimit = 10 * time.Second
	// lookDeadline is how long a reader waits for a version.
	lookDeadline = 30 * time.Second
	// maxPending is how many events may wait to be folded. One decision about a large fleet emits one event per node.
	maxPending = 100_000
)

// Fold is the readers' fold (ADR 0016). Fold follows the writer's fold, but has only events that are on disk. The
// writer gives events to the fold and never waits for the fold. The version of the readers' fold changes only when no
// reader uses it.
type Fold struct {
	mu      sync.Mutex
	version *Version      // nil until the log is folded
	left    *Version      // a version that its readers have kept for too long, or nil
	seq     uint64        // the last event in `version`
	stored  uint64        // the last event on disk; a new reader must see it
	pending []tutti.Event // events that are on disk but not in `version`
	gap     bool          // there were more events than `pending` can hold
	folding bool          // `version` is about to change, so no reader may begin

	changed watch.Broadcast // one of the fields above has changed
	wake    chan struct{}   // there are events to fold
}

// Version is the fold up to one event.
type Version struct {
	*fold.State
	readers int // how many readers use the version now
}

// New returns a Fold without a version. Begin sets the first version.
func New() *Fold {
	return &Fold{changed: watch.NewBroadcast(), wake: make(chan struct{}, 1)}
}

// Begin gets the fold of the whole log at the start.
func (r *Fold) Begin(state *fold.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version, r.seq, r.stored = &Version{State: state}, state.Seq, state.Seq
	r.changed.Tell()
}

// Hand gets events that are on disk. The writer calls Hand before it answers any caller.
func (r *Fold) Hand(events []tutti.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stored = events[len(events)-1].Seq
	if len(r.pending)+len(events) > maxPending {
		r.pending, r.gap = nil, true
	}
	if !r.gap {
		r.pending = append(r.pending, events...)
	}
	select {
	case r.wake <- struct{}{}:
	default: // the signal is set already
	}
}

// Enter returns a version with everything that was on disk at the time of the call. The caller must call
// Leave. Enter returns CodeUnavailable if the server has ended, or if no version was ready in time.
func (r *Fold) Enter(ctx context.Context, ended <-chan struct{}) (*Version, error) {
	timer := time.NewTimer(lookDeadline)
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	for wanted := r.stored; ; {
		select {
		case <-ended:
			return nil, NotServing()
		default:
		}
		if r.version != nil && !r.folding && r.seq >= wanted {
			r.version.readers++
			return r.version, nil
		}
		changed, seq := r.changed.Wait(), r.seq
		r.mu.Unlock()
		var err error
		select {
		case <-changed:
		case <-ended:
			err = NotServing()
		case <-ctx.Done():
			err = tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the server's readers to see event %d, they see %d", wanted, seq)
		case <-timer.C:
			err = tutti.Errorf(tutti.CodeUnavailable, "the server's readers did not see event %d within %s, they see %d; ask again", wanted, lookDeadline, seq)
		}
		r.mu.Lock()
		if err != nil {
			return nil, err
		}
	}
}

// NotServing returns the error that callers get while the server does not serve.
func NotServing() error { return tutti.Errorf(tutti.CodeUnavailable, "the server is not serving") }

// Leave says that a reader no longer uses a version.
func (r *Fold) Leave(v *Version) {
	r.mu.Lock()
	defer r.mu.Unlock()
	v.readers--
	if r.left != nil && r.left.readers == 0 {
		r.left = nil
	}
	if v.readers == 0 && r.folding {
		r.changed.Tell()
	}
}

// The method `next` lets no new readers in, waits until no reader uses the version, and returns the
// events to fold, in order. The function returns false if the log must be folded again instead. The
// log must be folded again if events were dropped from `pending`, or if readers keep the version for
// too long.
func (r *Fold) next(ctx context.Context) (events []tutti.Event, fits bool) {
	timer := time.NewTimer(holdLimit)
	defer timer.Stop()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.folding = true
	for late := false; !r.gap && ctx.Err() == nil; {
		if r.version.readers == 0 {
			events, r.pending = r.pending, nil
			return events, true
		}
		if late && r.left == nil { // only one version may be kept for slow readers, because memory is limited
			r.left = r.version
			break
		}
		changed := r.changed.Wait()
		r.mu.Unlock()
		select {
		case <-changed:
		case <-timer.C:
			late = true
		case <-ctx.Done():
		}
		r.mu.Lock()
	}
	r.pending, r.gap = nil, false // the new fold reads these events from the log
	return nil, false
}

// The method `show` lets readers in again, with this state and its sequence.
func (r *Fold) show(state *fold.State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.version.State != state {
		r.version = &Version{State: state}
	}
	r.seq, r.folding = state.Seq, false
	r.changed.Tell()
}

// Follow folds the events of Hand, until ctx ends. The function refold returns a new fold of all events on disk, or nil
// if ctx has ended.
func (r *Fold) Follow(ctx context.Context, refold func(context.Context) *fold.State) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		}
		state := r.version.State // only this goroutine replaces the state
		if events, fits := r.next(ctx); fits {
			for _, e := range events {
				if e.Seq > state.Seq { // a new fold may already have this event
					state.Apply(e)
				}
			}
		} else if state = refold(ctx); state == nil {
			return
		}
		r.show(state)
	}
}
