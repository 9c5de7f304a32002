// Package writer has the one goroutine that changes the state of a fleet. The goroutine folds the log and runs commands
// one after another. The writer appends the events that the commands and the owner emit, and only then answers. The
// owner of the writer decides what a command does and what follows from events.
//
// When an append ends, the writer handles all waiting commands together (group commit). Each command of the batch
// sees the effects of the commands before it. All events go into one append, and the answers leave when this append
// is on disk. If the log refuses an append, another writer has written to the log, so this writer must end. After a
// refused append, the writer's state in memory is wrong, and Run returns.
//
// An alternative was rejected: a lock around the state, and one append per request. Either such a lock would be held
// during the fsync, or the server could send an answer before the append of this answer is on disk.
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
	maxAppend      = 10_000 // events; no command emits more events, and the log accepts twice this number
	tick           = 250 * time.Millisecond
	foldAhead      = 1024 // events by which the writer's fold may be ahead of the readers' fold during the start
)

// Owner owns the state of the writer. The writer calls its methods one at a time. The methods must not block.
type Owner interface {
	// Folded gets the state after the fold of the log at the start.
	Folded(state *fold.State) error
	// Begins may append events before the server serves, see First.
	Begins(ctx context.Context, state *fold.State) error
	// Serves is the last call before the writer takes commands.
	Serves(state *fold.State)
	// Decide emits the decisions that follow from a batch or from the time.
	Decide(tx *Tx)
	// Stored gets events that are on disk, before the writer answers any caller.
	Stored(state *fold.State, events []tutti.Event)
	// The writer calls Answered after the answers of each batch, even if the batch emitted nothing.
	Answered(ctx context.Context, state *fold.State, events []tutti.Event)
}

// Options are the settings and adapters that a writer needs.
type Options struct {
	Log    tutti.Log
	Past   *past.Past // the past of this log
	Logger *slog.Logger
	// Space returns an error if there is no room for new work.
	Space func() error
	// Silence is the time after which a node without a message counts as silent.
	Silence time.Duration
	// SnapshotEvery is the number of events after which the writer takes a snapshot.
	SnapshotEvery int
	// Epochs remembers the epoch of the log. It may be nil.
	Epochs Epochs
}

// Writer is the only writer of the log. The methods Do, Read, Position and Behind are safe for concurrent calls.
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
	last  time.Time // when the writer last noticed that it was running
}

// command is work for the writer, with a channel for the answer.
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

// Ready returns a channel that is closed when the writer takes commands.
func (w *Writer) Ready() <-chan struct{} { return w.ready }

// Ended returns a channel that is closed when Run has returned.
func (w *Writer) Ended() <-chan struct{} { return w.ended }

// Appended returns a channel that is closed at the next append.
func (w *Writer) Appended() <-chan struct{} { return w.appended.Wait() }

// Go runs f in a new goroutine. Run waits for the end of the goroutine.
func (w *Writer) Go(f func()) { w.beside.Go(f) }

// Run folds the log and serves until ctx ends or the log refuses an append. Run returns
// after all its goroutines have ended.
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

// Do gives work to the writer, and waits until the emitted events are on disk. No other work runs at the
// same time. The work must not block, and must not use its transaction afterwards.
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

// Read calls f with a version of the fold. Read does not wait in the writer's queue. The version includes
// everything that was acknowledged before the call.
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

// Begun waits until the log is folded and the writer serves. Begun returns CodeUnavailable if the writer has ended.
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

// The method `gather` returns the first command and the commands that are waiting now.
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

// The method `commit` runs a batch of commands, lets the owner decide on the result,
// appends all events, and answers.
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

// The method `work` runs a command. If a command panics before it has changed anything, only this command fails. If
// the panic ended the server, the same message could end the server again and again.
func (w *Writer) work(tx *Tx, c *command) (err error) {
	before := len(tx.events)
	defer func() {
		switch p := recover(); {
		case p == nil:
		case len(tx.events) > before: // the state has only a part of the command's events
			panic(p)
		default:
			w.opts.Logger.Error("a command caused a panic", "panic", p, "stack", string(debug.Stack()))
			err = tutti.Errorf(tutti.CodeInternal, "a mistake of the server, see its log")
		}
	}()
	return c.work(tx)
}

// The method `woke` notices that this process did not run for some time. A signal or the virtual machine may have
// stopped the process, or the process may have waited for a disk. The server could not receive messages of nodes in
// this time, so their silence means nothing. So each node gets a full deadline again, as after a start. If the process
// runs, a ticker wakes the writer far more often. The method ignores a short pause, because a node that beats will not
// be late because of such a pause. Go's times have a monotonic clock, so a change of the clock does not look like a
// pause.
func (w *Writer) woke(now time.Time) {
	if paused := now.Sub(w.last); paused > tick+w.opts.Silence/4 {
		w.opts.Logger.Warn("the server was stopped for a while, so all deadlines begin again", "for", paused.Round(time.Second))
		w.since = now
	}
	w.last = now
}

// The method `append` stores the events of a batch. If the log cannot take all events in one
// append, the method uses several. The method never splits events that readers must see
// together.
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
	// An append that has begun is completed, because the caller could not distinguish a half append from no append.
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

// notStored returns the answer to a command if the append of its events failed.
func (w *Writer) notStored(err error) error {
	if full := w.opts.Space(); full != nil {
		return tutti.Errorf(tutti.CodeUnavailable, "%v; it is not known whether this was stored", full)
	}
	return tutti.Wrap(tutti.CodeUnavailable, err, "append to the log")
}

// The method `emit` appends an event of the server.
func (w *Writer) emit(ctx context.Context, body tutti.Body) error {
	return w.Do(ctx, func(tx *Tx) error {
		tx.Emit(Actor, body)
		return nil
	})
}

// First appends an event before the server serves. Only Owner.Begins may call First.
func (w *Writer) First(ctx context.Context, body tutti.Body) error {
	return w.commit(ctx, []*command{{done: make(chan error, 1), work: func(tx *Tx) error {
		tx.Emit(Actor, body)
		return nil
	}}})
}
