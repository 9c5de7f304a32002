package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/denials"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/explain"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/past"
	"github.com/tutti-project/tutti/internal/presence"
	"github.com/tutti-project/tutti/internal/replica"
	"github.com/tutti-project/tutti/internal/retain"
	"github.com/tutti-project/tutti/internal/share"
	"github.com/tutti-project/tutti/internal/watch"
	"github.com/tutti-project/tutti/wire"
)

// Bus reaches nodes. A message may be lost: it is only ever a doorbell.
type Bus interface {
	Ring(key tutti.NodeKey, op string, payload []byte) error
}

// Identity makes and checks what proves who somebody is.
type Identity interface {
	// NewToken makes a join token; the log keeps the hash of its secret.
	NewToken(in api.CreateToken) (text string, id tutti.TokenID, hash tutti.Digest, err error)
	// VerifyEnrol checks the request's signature and returns its secret's hash.
	VerifyEnrol(in api.EnrolRequest) (tutti.Digest, error)
	// Enrol makes a node's credentials.
	Enrol(node tutti.NodeName, key tutti.NodeKey) (api.Enrolled, error)
	// Revoke ends a key, also on connections that are open. Revoking again is
	// no error: after a start all revoked keys are revoked anew.
	Revoke(keys ...tutti.NodeKey) error
	// IssueOperator signs a certificate for the key of a request (PEM). See tutti.IssueOperator.
	IssueOperator(in api.IssueOperator) (api.IssuedOperator, error)
	Signers
}

// Keys are the sets of keys by which the server proves itself and issues what others prove themselves by.
type Keys interface {
	// KeySets are those that are trusted now.
	KeySets() (tutti.KeySets, error)
	// Rotate brings them into a phase: durably, and for all who connect from now on. Again it changes nothing.
	Rotate(phase tutti.RotationPhase) error
	// Settle ends, soon, what stands on a set that is gone.
	Settle()
}

// Options are what a server needs. Zero durations take the defaults.
type Options struct {
	Log      tutti.Log
	Blobs    tutti.Blobs
	Bus      Bus
	Identity Identity
	Logger   *slog.Logger

	// Space says, as CodeUnavailable, that there is no room for new work; what has
	// begun goes on. Asked often; nil: there always is.
	Space func() error

	Silence  time.Duration // a node silent for so long is lost; 30 s
	InFlight int           // runs at once in the fleet; 0: no limit
	Compiles int           // at once while nodes converge; 200
	Keep     engine.Keep   // what stays of the past; 1,000 jobs, 20,000 runs
	// KeepReports is which reports and logs of these runs stay; all.
	KeepReports retain.Reports
	// SnapshotEvery is after how many events a snapshot is taken, if the log can
	// let go of what it has; 10,000.
	SnapshotEvery int
	NewRunID      func() tutti.RunID
	// FirstOperator is whose certificate was made before there was a log. May be nil.
	FirstOperator *tutti.OperatorIssued
	// Scrubs remembers when content was read last, all of it; each ScrubEvery it is. nil or 0: it is not.
	Scrubs     past.Scrubs
	ScrubEvery time.Duration
	// Epochs remembers the log's epoch; nil: nobody does.
	Epochs Epochs
	// Keys can be rotated; nil: they cannot.
	Keys Keys
}

// Epochs is what is known beside the log of its epoch, so that a log which is gone as a whole
// is told from a new one.
type Epochs interface {
	// Last is the epoch that was begun last, the zero one before the first start. If another
	// one is to be begun, because the log was put back, its number is at least that of above.
	Last() (last tutti.Epoch, above uint64)
	// Began hears of the epoch that goes on, before anybody is served.
	Began(tutti.Epoch) error
}

// Server is the writer, and a fold beside it for readers. It implements tutti.Jobs,
// tutti.Nodes, tutti.Tokens, tutti.Operators, tutti.Codes, tutti.Values, tutti.Pauses,
// tutti.Explains, tutti.Reports and tutti.Remotes for operators, and Handle for nodes;
// all of them may be called at once, and answer CodeUnavailable while Run does not
// serve.
type Server struct {
	*explain.Reader // answers what only looks, without the writer

	opts     Options
	commands chan *command
	ready    chan struct{} // closed when Run serves
	ended    chan struct{} // closed when Run has returned
	replica  *replica.Fold
	presence presence.Nodes
	hub      watch.Hub
	appended watch.Broadcast
	access   access
	denials  denials.Minute
	shares   *share.Shares
	past     *past.Past
	asks     asks
	readings *share.Readings
	files    atomic.Pointer[codeFiles]
	leavers  []leaver // the writer's
	at       atomic.Pointer[tutti.Position]
	saidBack atomic.Int64                 // when it was last said that somebody knows more, in seconds
	admitted map[tutti.NodeName]admission // the writer's: of the run of each node that is held
	stored   map[tutti.NodeKey]int64      // the writer's: bytes of blobs that a node has sent since its last result
	rotating sync.Mutex                   // held by who takes a step of a rotation
	beside   sync.WaitGroup               // what goes on beside the writer
}

const (
	defaultSilence  = 30 * time.Second
	defaultJobs     = 1000
	defaultRuns     = 20_000
	defaultCompiles = 200
	snapshotEvery   = 10_000 // events
	appendDeadline  = 20 * time.Second
	maxBatch        = 256
	maxAppend       = 10_000 // events; the log takes twice as many, and no command emits more
	tick            = 250 * time.Millisecond
	foldAhead       = 1024 // events that the writer's fold may be ahead of the readers', at the start
)

// New returns a server that has not begun.
func New(opts Options) *Server {
	if opts.Silence == 0 {
		opts.Silence = defaultSilence
	}
	if opts.Space == nil {
		opts.Space = func() error { return nil }
	}
	opts.SnapshotEvery = cmp.Or(opts.SnapshotEvery, snapshotEvery)
	opts.Compiles = cmp.Or(opts.Compiles, defaultCompiles)
	opts.Keep.Jobs = cmp.Or(opts.Keep.Jobs, defaultJobs)
	opts.Keep.Runs = cmp.Or(opts.Keep.Runs, defaultRuns)
	s := &Server{
		opts:     opts,
		commands: make(chan *command),
		ready:    make(chan struct{}),
		ended:    make(chan struct{}),
		replica:  replica.New(),
		presence: presence.New(),
		hub:      watch.NewHub(),
		appended: watch.NewBroadcast(),
		access:   newAccess(),
		asks:     newAsks(),
		shares:   share.New(),
		stored:   map[tutti.NodeKey]int64{},
		admitted: map[tutti.NodeName]admission{},
		readings: share.NewReadings(),
		past: past.New(past.Options{Log: opts.Log, Blobs: opts.Blobs, Logger: opts.Logger,
			KeepReports: opts.KeepReports, Scrubs: opts.Scrubs, ScrubEvery: opts.ScrubEvery}),
	}
	s.Reader = explain.New(s.look, thePast{s.past, s}, opts.Blobs)
	return s
}

// Ready is closed as soon as the server serves.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run folds the log and serves until ctx ends or an append is refused. It
// returns after all its goroutines have.
func (s *Server) Run(ctx context.Context) error {
	defer close(s.ended)
	ctx, cancel := context.WithCancel(ctx)
	defer s.beside.Wait()
	defer cancel()

	w := &writer{Server: s, state: fold.New(), probing: map[probeKey]*probing{}}
	if err := w.fold(ctx); err != nil {
		return err
	}
	if err := s.opts.Identity.Revoke(w.state.Registry.Revoked...); err != nil {
		return fmt.Errorf("revoke the keys of nodes that have left: %w", err)
	}
	w.since = time.Now()
	s.presence.Load(w.state)
	w.last = w.since
	if err := w.beginEpoch(ctx); err != nil {
		return err
	}
	if err := w.noteFirst(ctx); err != nil {
		return err
	}
	if err := w.followRotation(ctx); err != nil {
		return err
	}
	w.arrived()
	if err := w.snapshotFirst(ctx); err != nil {
		return err
	}
	s.access.load(w.state)
	s.opts.Logger.Info("serving", "seq", w.state.Seq, "nodes", len(w.state.Registry.Nodes), "jobs", len(w.state.Engine.Order))
	close(s.ready)
	s.beside.Go(func() { s.past.Keep(ctx, s.emit) })
	s.beside.Go(func() { s.past.Scrub(ctx) })
	s.beside.Go(func() { s.replica.Follow(ctx, s.refold) })
	w.resume()
	return w.serve(ctx)
}

// do hands work to the writer and waits until what it emitted is on disk.
// The work runs alone; it must not block and not keep what it was given.
func (s *Server) do(ctx context.Context, work func(tx *tx) error) error {
	c := &command{done: make(chan error, 1), work: func(tx *tx) error {
		if err := stillIn(ctx, tx.State); err != nil {
			return err
		}
		tx.ticket, tx.notNow = wire.TicketOf(ctx), refusalOf(ctx)
		return work(tx)
	}}
	select {
	case s.commands <- c:
	case <-s.ended:
		return errNotServing()
	case <-ctx.Done():
		return tutti.Wrap(tutti.CodeDeadline, context.Cause(ctx), "waiting for the server's writer")
	}
	select {
	case err := <-c.done:
		return err
	case <-s.ended:
		// The writer may have answered in its last moment.
		select {
		case err := <-c.done:
			return err
		default:
			return tutti.Errorf(tutti.CodeUnavailable, "the server stopped before it had answered; ask again")
		}
	}
}

// writer is the part of the server that owns the state.
type writer struct {
	*Server
	state   *fold.State
	since   time.Time // deadlines of nodes and waits count from here at the earliest
	last    time.Time // it was seen to run
	probing map[probeKey]*probing
	held    bool      // there was no room at the last decision
	heldTo  time.Time // and then there was for the last time none
	rung    map[tutti.JobID]rungLeases
	resting time.Time // no decision on converge steps before
}

func (w *writer) serve(ctx context.Context) error {
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

// gather takes the commands that are waiting behind the first one.
func (w *writer) gather(first *command) []*command {
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

// commit runs a batch of commands, lets the engine decide on the result,
// appends all of it and answers.
func (w *writer) commit(ctx context.Context, batch []*command) error {
	tx := &tx{State: w.state, now: time.Now(), server: w.Server}
	w.woke(tx.now)
	answers := make([]error, len(batch))
	for i, c := range batch {
		answers[i] = w.work(tx, c)
		tx.mayCut()
	}
	for _, d := range w.denials.Due(tx.now) {
		tx.emit(actorServer, d)
		tx.mayCut()
	}
	w.decide(tx)
	if len(tx.events) > 0 {
		if err := w.append(ctx, tx); err != nil {
			for _, c := range batch {
				c.done <- w.notStored(err)
			}
			return err
		}
		w.arrived(tx.events...)
		w.replica.Hand(tx.events)
		w.presence.Apply(w.state, tx.events)
		w.access.apply(tx.events)
	}
	for i, c := range batch {
		c.done <- answers[i]
	}
	w.after(ctx, tx.events)
	return nil
}

// work runs a command. One that panics before it has changed anything has failed, and no other has; the server would
// end by the same message again and again.
func (w *writer) work(tx *tx, c *command) (err error) {
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

// woke notices that this process did not run for a while: stopped by a signal,
// by its virtual machine, or held by a disk. What nodes said meanwhile it did not
// hear, so that their silence means nothing: they get one whole deadline anew, as
// after a start. The ticker wakes a writer that runs far more often, and a
// pause that is shorter cannot make a node that beats too late. The times carry
// the monotonic clock: a clock that is set is no pause.
func (w *writer) woke(now time.Time) {
	if paused := now.Sub(w.last); paused > tick+w.opts.Silence/4 {
		w.opts.Logger.Warn("the server did not run, deadlines count anew", "for", paused.Round(time.Second))
		w.since = now
	}
	w.last = now
}

// append stores what a batch emitted: at once if that is no more than the log
// takes, else part by part. What must be seen together is never parted.
func (w *writer) append(ctx context.Context, tx *tx) error {
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

func (w *writer) appendPart(ctx context.Context, events []tutti.Event) error {
	// An append that has begun is carried through: half of it cannot be told
	// from none of it by whoever asked.
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

// decide lets the engine and the value waits append until nothing is left, then
// retires what is too much of the past.
func (w *writer) decide(tx *tx) {
	held := w.hold(tx)
	view := engine.View{
		Now: tx.now, Since: w.since, Seen: w.presence.Seen,
		Silence: w.opts.Silence, InFlight: w.opts.InFlight, Hold: held, HeldTo: w.heldTo,
		Program: tx.ProgramOf, LastAnswer: w.lastAnswer,
	}
	for {
		w.checkValueWaits(tx)
		bodies := w.state.Engine.Decide(view)
		if len(bodies) == 0 && !w.convergence(tx, held) {
			break
		}
		for _, b := range bodies {
			if want, ok := b.(*tutti.RunWanted); ok {
				tx.name(want)
			}
			tx.emit(actorServer, b)
			tx.mayCut()
		}
	}
	for _, id := range w.state.Engine.Retire(w.opts.Keep) {
		tx.emit(actorServer, &tutti.JobRetired{Job: id})
		tx.mayCut()
	}
}

// after does what is allowed only once the events are on disk.
func (w *writer) after(ctx context.Context, events []tutti.Event) {
	if len(events) > 0 {
		killpoint.Here("server.answered", events[0].Body.Kind())
		defer killpoint.Here("server.rung", events[0].Body.Kind())
	}
	for _, e := range events {
		switch b := e.Body.(type) {
		case *tutti.RunWanted:
			w.ring(b.Order.Node, wire.RingClaim)
		case *tutti.RunGated:
			if r := w.state.Engine.Runs[b.Run]; r != nil && w.state.Engine.Converges(r) {
				w.ring(r.Node, wire.RingGate)
			}
		case *tutti.JobStarted:
			for _, node := range w.state.Engine.Later(b.Job) { // it gets ready for its turn
				w.ring(node, wire.RingClaim)
			}
			w.opts.Logger.Info("job started", "job", b.Job, "mode", b.Mode, "by", e.By)
		case *tutti.JobFinished:
			w.opts.Logger.Info("job finished", "job", b.Job, "verdict", b.Verdict)
		case *tutti.LeaseChanged:
			if b.State.Failed() {
				w.opts.Logger.Warn("an exclusive job does not have a node", "job", b.Job, "node", b.Node, "state", b.State, "because", b.Message)
			}
		case *tutti.RunLost:
			w.opts.Logger.Warn("run lost", "run", b.Run, "because", b.Reason)
		case *tutti.OperatorIssued:
			w.opts.Logger.Info("operator.issued", "operator", e.Body.ID(), "by", e.By)
		case *tutti.CARotated:
			w.opts.Logger.Info("the CA is rotated", "state", b.Phase, "by", e.By)
		case *tutti.OperatorRevoked:
			w.opts.Logger.Info("operator.revoked", "operator", e.Body.ID(), "by", e.By)
		case *tutti.Denied:
			w.opts.Logger.Warn("denied", "who", b.Who, "what", b.What)
		}
	}
	w.reconcileProbes(ctx)
	w.ringLeases(time.Now())
	w.endLeavers()
	if len(events) > 0 {
		w.appended.Tell()
	}
	if w.needsSnapshot() {
		w.past.Due()
	}
}

// resume rings the nodes that hold an unfinished run: a server that was killed
// between an append and its doorbell must not leave them asleep.
func (w *writer) resume() {
	for node := range w.state.Engine.Active {
		w.ring(node, wire.RingClaim)
	}
}

func (w *writer) ring(node tutti.NodeName, op string) {
	n := w.state.Registry.Nodes[node]
	if n == nil {
		return
	}
	if err := w.opts.Bus.Ring(n.Key, op, nil); err != nil {
		// The node claims by itself when it reconnects.
		w.opts.Logger.Warn("doorbell not rung", "node", node, "error", err)
	}
}
