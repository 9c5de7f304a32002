// Package writer has the one goroutine that changes the state of a fleet. It folds the log into that state, runs commands
// one after another, appends what they and the owner decide, and only then answers. It knows transactions. What a command
// does, and what follows from events, is its owner's.
//
// All commands that are waiting when an append ends are handled together: each sees the effects of those before it, their
// events go into one append, and their answers leave when that append is on disk (group commit). A refused append ends the
// writer, because somebody else has written. Everything in memory is then worthless, and Run returns.
//
// Rejected: a lock around the state with an append per request. It either holds the lock during the fsync, or lets an
// answer leave before the append that it depends on.
package writer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/replica"
	"github.com/tutti-project/tutti/internal/watch"
)

const (
	appendDeadline = 20 * time.Second
	maxBatch       = 256
	maxAppend      = 10_000 // events; the log takes twice as many, and no command emits more
	tick           = 250 * time.Millisecond
	foldAhead      = 1024 // events by which the writer's fold may be ahead of the readers', at the start
)

// Owner owns the state. Its methods are called one at a time, and must not block.
type Owner interface {
	// Folded gets the state that the log had at the start.
	Folded(state *fold.State) error
	// Begins may append before the server serves, see First.
	Begins(ctx context.Context, state *fold.State) error
	// Serves is the last call before commands are taken.
	Serves(state *fold.State)
	// Decide emits what follows from a batch, or from the time.
	Decide(tx *Tx)
	// Stored gets events that are on disk, before any caller is answered.
	Stored(state *fold.State, events []tutti.Event)
	// Answered is called after the answers of each batch, even if the batch emitted nothing.
	Answered(ctx context.Context, state *fold.State, events []tutti.Event)
}

// Options are what a writer needs.
type Options struct {
	Log    tutti.Log
	Past   *past.Past // of this log
	Logger *slog.Logger
	// Space says why there is no room for new work; nil: there is room.
	Space func() error
	// Silence is after how long nodes count as silent.
	Silence time.Duration
	// SnapshotEvery is after how many events a snapshot is taken.
	SnapshotEvery int
	// Epochs remembers the log's epoch. May be nil.
	Epochs Epochs
}

// Writer is the only one that appends. Do, Read, Position and Behind may be called concurrently.
type Writer struct {
	opts     Options
	owner    Owner
	commands chan *command
	ready    chan struct{} // closed when Run serves
	ended    chan struct{} // closed when Run has returned
	replica  *replica.Fold
	appended watch.Broadcast
	at       atomic.Pointer[tutti.Position]
	beside   sync.WaitGroup // the goroutines that Go has started

	state *fold.State
	since time.Time // see Tx.Since
	last  time.Time // when it was last seen to run
}

// command is work for the writer and where its answer goes.
type command struct {
	work func(tx *Tx) error
	done chan error
}

// New returns a writer. Run starts it.
func New(opts Options, owner Owner) *Writer {
	return &Writer{
		opts:     opts,
		owner:    owner,
		commands: make(chan *command),
		ready:    make(chan struct{}),
		ended:    make(chan struct{}),
		replica:  replica.New(),
		appended: watch.NewBroadcast(),
		state:    fold.New(),
	}
}

// Ready is closed as soon as commands are taken.
func (w *Writer) Ready() <-chan struct{} { return w.ready }

// Ended is closed when Run has returned.
func (w *Writer) Ended() <-chan struct{} { return w.ended }

// Appended is closed at the next append.
func (w *Writer) Appended() <-chan struct{} { return w.appended.Wait() }

// Go runs f in a goroutine of its own. Run waits for its end.
func (w *Writer) Go(f func()) { w.beside.Go(f) }

// Run folds the log and serves until ctx ends or an append is refused. It
// returns after all its goroutines have ended.
func (w *Writer) Run(ctx context.Context) error {
	defer close(w.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer w.beside.Wait()
	defer cancel()

	if err := w.fold(ctx); err != nil {
		return err
	}
	w.since = time.Now()
	w.last = w.since
	if err := w.owner.Folded(w.state); err != nil {
		return err
	}
	if err := w.beginEpoch(ctx); err != nil {
		return err
	}
	if err := w.owner.Begins(ctx, w.state); err != nil {
		return err
	}
	w.arrived()
	if err := w.snapshotFirst(ctx); err != nil {
		return err
	}
	w.owner.Serves(w.state)
	close(w.ready)
	w.Go(func() { w.opts.Past.Keep(ctx, w.emit) })
	w.Go(func() { w.opts.Past.Scrub(ctx) })
	w.Go(func() { w.replica.Follow(ctx, w.refold) })
	return w.serve(ctx)
}

// Do hands work to the writer and waits until what it emitted is on disk.
// The work runs alone. It must not block, and must not keep its transaction.
func (w *Writer) Do(ctx context.Context, work func(tx *Tx) error) error {
	c := &command{done: make(chan error, 1), work: work}
	select {
	case w.commands <- c:
	case <-w.ended:
		return replica.NotServing()
	case <-ctx.Done():
		return tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the server's writer")
	}
	select {
	case err := <-c.done:
		return err
	case <-w.ended:
		// The writer may have answered just before it ended.
		select {
		case err := <-c.done:
			return err
		default:
			return tutti.Errorf(tutti.CodeUnavailable, "the server stopped before it had answered; ask again")
		}
	}
}

// Read calls f with a version of the fold beside the writer, without its queue. The version has all that was acknowledged
// before the call.
func (w *Writer) Read(ctx context.Context, f func(state *fold.State) error) error {
	if err := w.Begun(ctx); err != nil {
		return err
	}
	version, err := w.replica.Enter(ctx, w.ended)
	if err != nil {
		return err
	}
	defer w.replica.Leave(version)
	return f(version.State)
}

// Begun waits until the log is folded and the writer serves. CodeUnavailable: the writer has ended.
func (w *Writer) Begun(ctx context.Context) error {
	select {
	case <-w.ready:
		return nil
	case <-w.ended:
		return replica.NotServing()
	case <-ctx.Done():
		return tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the server to read its log")
	}
}

func (w *Writer) serve(ctx context.Context) error {
	ticker := time.NewTicker(tick)
	defer ticker.Stop()
	for {
		var batch []*command
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case c := <-w.commands:
			batch = w.gather(c)
		case <-ticker.C:
		}
		if err := w.commit(ctx, batch); err != nil {
			return err
		}
	}
}

// gather takes the commands that wait after the first one.
func (w *Writer) gather(first *command) []*command {
	batch := []*command{first}
	for len(batch) < maxBatch {
		select {
		case c := <-w.commands:
			batch = append(batch, c)
		default:
			return batch
		}
	}
	return batch
}

// commit runs a batch of commands, lets the owner decide on the result,
// appends all of it and answers.
func (w *Writer) commit(ctx context.Context, batch []*command) error {
	now := time.Now()
	w.woke(now)
	tx := &Tx{State: w.state, Now: now, Since: w.since}
	answers := make([]error, len(batch))
	for i, c := range batch {
		answers[i] = w.work(tx, c)
		tx.MayCut()
	}
	w.owner.Decide(tx)
	if len(tx.events) > 0 {
		if err := w.append(ctx, tx); err != nil {
			for _, c := range batch {
				c.done <- w.notStored(err)
			}
			return err
		}
		w.arrived(tx.events...)
		w.replica.Hand(tx.events)
		w.owner.Stored(w.state, tx.events)
	}
	for i, c := range batch {
		c.done <- answers[i]
	}
	w.owner.Answered(ctx, w.state, tx.events)
	if len(tx.events) > 0 {
		w.appended.Tell()
	}
	if w.needsSnapshot() {
		w.opts.Past.Due()
	}
	return nil
}

// work runs a command. If a command panics before it has changed anything, only this command fails. Otherwise the same message
// would end the server again and again.
func (w *Writer) work(tx *Tx, c *command) (err error) {
	before := len(tx.events)
	defer func() {
		switch p := recover(); {
		case p == nil:
		case len(tx.events) > before: // half of what it says is in the state
			panic(p)
		default:
			w.opts.Logger.Error("a command caused a panic", "panic", p, "stack", string(debug.Stack()))
			err = tutti.Errorf(tutti.CodeInternal, "a mistake of the server, see its log")
		}
	}()
	return c.work(tx)
}

// woke notices that this process did not run for a while: it was stopped by a signal or
// by its virtual machine, or held up by a disk. It did not hear what nodes said meanwhile,
// so their silence means nothing. Nodes get one whole deadline again, as after a start.
// The ticker wakes a running writer far more often. A shorter pause cannot make a node
// late that beats. The times carry the monotonic clock, so setting the clock does not
// look like a pause.
func (w *Writer) woke(now time.Time) {
	if paused := now.Sub(w.last); paused > tick+w.opts.Silence/4 {
		w.opts.Logger.Warn("the server did not run, deadlines count anew", "for", paused.Round(time.Second))
		w.since = now
	}
	w.last = now
}

// append stores what a batch emitted: at once if the log can take that in one append,
// otherwise in parts. What must be seen together is never split.
func (w *Writer) append(ctx context.Context, tx *Tx) error {
	begin, end := 0, 0
	for _, cut := range append(tx.cuts, len(tx.events)) {
		if cut-begin > maxAppend && end > begin {
			if err := w.appendPart(ctx, tx.events[begin:end]); err != nil {
				return err
			}
			begin = end
		}
		end = cut
	}
	return w.appendPart(ctx, tx.events[begin:])
}

func (w *Writer) appendPart(ctx context.Context, events []tutti.Event) error {
	// An append that has begun is completed: the caller could not tell a half append
	// from one that did not happen.
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), appendDeadline, errors.New("the log did not answer in time"))
	defer cancel()
	last := events[0].Seq - 1
	killpoint.Here("server.appends", events[0].Body.Kind())
	got, err := w.opts.Log.Append(ctx, last, events)
	killpoint.Here("server.stored", events[0].Body.Kind())
	if err != nil {
		return fmt.Errorf("append %d events after %d: %w", len(events), last, err)
	}
	if want := last + uint64(len(events)); got != want {
		return fmt.Errorf("append after %d ended at %d, not at %d", last, got, want)
	}
	return nil
}

// notStored returns the answer to a command whose events could not be appended.
func (w *Writer) notStored(err error) error {
	if full := w.opts.Space(); full != nil {
		return tutti.Errorf(tutti.CodeUnavailable, "%v; whether this was kept is not known", full)
	}
	return tutti.Wrap(tutti.CodeUnavailable, err, "append to the log")
}

// emit appends an event of the server itself.
func (w *Writer) emit(ctx context.Context, body tutti.Body) error {
	return w.Do(ctx, func(tx *Tx) error {
		tx.Emit(Actor, body)
		return nil
	})
}

// First appends an event before the server serves. It is for Owner.Begins.
func (w *Writer) First(ctx context.Context, body tutti.Body) error {
	return w.commit(ctx, []*command{{done: make(chan error, 1), work: func(tx *Tx) error {
		tx.Emit(Actor, body)
		return nil
	}}})
}
