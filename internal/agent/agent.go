package agent

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// Bus is the node's connection to the server.
type Bus interface {
	// Call asks and waits for the answer; CodeUnavailable when the server is
	// away. It is never a good answer that did not come.
	Call(ctx context.Context, op string, payload []byte) ([]byte, error)
	// Send says something that may be lost.
	Send(op string, payload []byte) error
	OnRing(func(op string, payload []byte)) error
	OnConnect(func())
	// SetTicket lets each later message carry a ticket; see tutti.Hello.
	SetTicket(ticket string)
}

// Process is a Puppet that runs.
type Process interface {
	// Wait returns nil when the process is gone.
	Wait(ctx context.Context) error
	// Kill ends it and what it started.
	Kill(ctx context.Context) error
}

// Runner is the node's Puppet.
type Runner interface {
	// Start writes the durable marker into the run's directory, then starts
	// Puppet. CodeNotFound: there is no Puppet.
	Start(dir string, spec Spec) (Process, error)
	// Spec returns what the marker says; os.ErrNotExist without one.
	Spec(dir string) (Spec, error)
	// Adopt returns the process that an earlier agent started, nil if it is
	// gone.
	Adopt(dir string) (Process, error)
	// Follow yields what happens inside the run, until ctx ends.
	Follow(ctx context.Context, dir string, run tutti.RunID, yield func([]tutti.Live))
	// Judge says how it ended.
	Judge(dir string, run tutti.RunID) tutti.Result
	// Strangers names Puppets that take no lock.
	Strangers() ([]string, error)
}

// Spec is what the runner is told about a run.
type Spec struct {
	Order           tutti.Order
	Node            tutti.NodeName
	EnvironmentPath string
	Socket          string
	StartedAt       time.Time
	Clock           tutti.Clock // when that was
}

// Options are what an agent needs. Zero durations take the defaults.
type Options struct {
	Dir     string // the agent's state, on a disk that survives
	Node    tutti.NodeName
	Bus     Bus
	Machine tutti.Digest // see tutti.Hello
	Runner  Runner
	Signers Signers
	Boxes   Boxes // open secrets; nil: none is opened
	Logger  *slog.Logger
	Version string
	// Space says that there is no room to begin a run; nil: there always is.
	Space func() error
	// Local is the node's Puppet for the remote control, Allow the node's policy; nil:
	// no question is answered.
	Local Local
	Allow func(policy.Question) (allowed bool, because string)
	// Acting are the operators who sign what the remote control changes; nil: nobody does.
	Acting Acting
	// Switch is how exclusive jobs keep other Puppets away; nil: none is served.
	Switch Switch
	// Witness sees the runs that others start; nil: nobody does.
	Witness Witness

	// Facts sees which facts the node has after its runs; nil: nobody does. FactsEvery is how often
	// it looks though nothing is seen to have changed; 0: never.
	Facts      Facts
	FactsEvery time.Duration

	// Warm has Puppet ready for runs that are to come; nil: nobody does.
	Warm Warm

	// Idle is called when a claim brings no run for the first time, and for the first
	// time after a run; nil: nobody wants to know.
	Idle func()

	// Follow is called when the server may want the node to stand on other keys: after each exchange of the ticket,
	// and when it rings. It must not block; nil: nobody wants to know.
	Follow func()

	// ServeLocal lets root on this machine begin runs without the server.
	ServeLocal bool

	// Compile is where the Puppet Server on this node asks; nil: there is none.
	Compile *CompileSocket

	Beat     time.Duration // between heartbeats; 5 s
	Patience time.Duration // for one answer, and for a server that is away before the last known ones are taken; 30 s
	KeepRuns int           // directories of ended runs that are kept; 20
	Refusals int           // of a result for a reason of the server's own, a second or more apart, before it is given up; 10
}

// Warm is something that has Puppet loaded before there is a run.
type Warm interface {
	// Expect hears what may follow, after each claim that brought no run.
	Expect(e wire.Expectation)
	// Memory is what it costs now, in bytes.
	Memory() int64
}

// cold has nothing loaded.
type cold struct{}

func (cold) Expect(wire.Expectation) {}
func (cold) Memory() int64           { return 0 }

// Agent runs Puppet when the server says so. All methods but Run belong to it.
type Agent struct {
	opts   Options
	code   codeStore
	known  knownAnswers
	wake   chan struct{} // something may be there to claim
	gate   chan struct{} // the gate of the run that holds may have decided
	lease  chan struct{} // an exclusive job wants to hear of the node
	greet  chan struct{} // the ticket is to be exchanged
	beat   chan struct{} // somebody wants to hear at once who is there
	remote chan tutti.RemoteRequest
	// lookAgain says that Puppet's last report may be another one, or can be sent.
	lookAgain chan struct{}
	boxing    sync.Mutex    // one at a time gives the node another key for its secrets
	collects  chan struct{} // facts are being collected after a run
	tellAgain chan struct{} // the server may not know which facts there are
	exchange  *exchange
	told      map[tutti.RunID]bool // ended, and the disk did not take the result
	refusals  refusals             // of the claim loop
	begun     begun                // as on disk, or further; of the claim loop
	takenMu   sync.Mutex           // of ActionsFile
	mu        sync.Mutex
	active    *activeRun
	stuck     error // why the last claim was in vain, if not for the server's absence
	lost      error // what became of a lease's note
	greeted   bool  // the ticket is exchanged
	notTaken  error // why the server does not take this machine for the node

	hearing   sync.Mutex // one run at a time goes into the outbox
	clockMu   sync.Mutex // of ClockFile
	heardAt   map[tutti.RunID]time.Time
	localAsks chan localAsk
	aloneMu   sync.Mutex
	alone     Alone
	aloneAt   time.Time // Alone.Reached as on disk
}

const (
	defaultBeat     = 5 * time.Second
	defaultPatience = 30 * time.Second
	defaultKeepRuns = 20
	defaultRefusals = 10
	claimEvery      = 30 * time.Second
	retryAfter      = time.Second
	firstLook       = 10 * time.Second
	holdAfter       = 5 * time.Second // a held run asks its gate again, if no doorbell rings before
)

var errNotGreeted = tutti.Errorf(tutti.CodeUnavailable, "the ticket is not exchanged yet")

// New returns an agent that has not begun.
func New(opts Options) *Agent {
	exchange := &exchange{}
	opts.Bus = greetedBus{pointedBus{opts.Bus}, exchange}
	if opts.Beat == 0 {
		opts.Beat = defaultBeat
	}
	if opts.Patience == 0 {
		opts.Patience = defaultPatience
	}
	if opts.Space == nil {
		opts.Space = func() error { return nil }
	}
	if opts.Warm == nil {
		opts.Warm = cold{}
	}
	if opts.Acting == nil {
		opts.Acting = nobody{}
	}
	if opts.Idle == nil {
		opts.Idle = func() {}
	}
	if opts.Follow == nil {
		opts.Follow = func() {}
	}
	if opts.KeepRuns == 0 {
		opts.KeepRuns = defaultKeepRuns
	}
	if opts.Refusals == 0 {
		opts.Refusals = defaultRefusals
	}
	a := &Agent{
		opts:  opts,
		known: knownAnswers{dir: filepath.Join(opts.Dir, "known")},
		wake:  make(chan struct{}, 1),
		gate:  make(chan struct{}, 1),
		lease: make(chan struct{}, 1),
		greet: make(chan struct{}, 1),
		beat:  make(chan struct{}, 1),

		remote: make(chan tutti.RemoteRequest, remoteQueue), lookAgain: make(chan struct{}, 1),
		collects: make(chan struct{}, 1), tellAgain: make(chan struct{}, 1), localAsks: make(chan localAsk),

		told: map[tutti.RunID]bool{}, heardAt: map[tutti.RunID]time.Time{}, exchange: exchange,
	}
	a.code = codeStore{
		dir: opts.Dir, call: opts.Bus.Call, signers: opts.Signers, needs: a.needsCode,
		begun: &counters{path: filepath.Join(opts.Dir, SignedFile)},
	}
	return a
}

// Run serves until ctx ends. A Puppet that runs then runs on: the next agent
// finds it.
func (a *Agent) Run(ctx context.Context) error {
	for _, dir := range []string{a.runsDir(), a.known.dir, a.foreignDir()} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return err
		}
	}
	a.loadAlone()
	a.opts.Bus.SetTicket(a.readTicket().Ticket)
	if err := a.opts.Bus.OnRing(a.ring); err != nil {
		return err
	}
	a.opts.Bus.OnConnect(func() {
		a.exchange.due()
		ring(a.greet) // and the rest after that
	})
	compiles, err := a.listenCompile()
	if err != nil { // the node's own runs need no such socket
		a.opts.Logger.Error("nobody can compile here for other nodes", "error", err)
	}
	var local net.Listener
	if a.opts.ServeLocal {
		if local, err = a.listenLocal(); err != nil { // orders need no such socket
			a.opts.Logger.Error("nobody can begin a run on this machine", "error", err)
		}
	}
	told := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer func() {
		beside.Wait()
		if told.Err() != nil {
			a.sendBeat(true) // nobody says anything after it
		}
	}()
	defer cancel(nil)
	beside.Go(func() { a.hellos(ctx) })
	beside.Go(func() { a.beats(ctx) })
	beside.Go(func() { a.remotes(ctx) })
	if compiles != nil {
		beside.Go(func() { a.compiles(ctx, compiles) })
	}
	if local != nil {
		beside.Go(func() { a.locals(ctx, local) })
	}
	beside.Go(func() { a.finishBox(ctx) })
	beside.Go(func() { a.leases(ctx) })
	looked := make(chan struct{})
	beside.Go(func() { a.foreigns(ctx, looked) })
	beside.Go(func() { a.tellFacts(ctx) })
	select { // a run of ours replaces the report that is there
	case <-looked:
	case <-ctx.Done():
	case <-time.After(firstLook):
	}
	return a.claims(ctx)
}

func (a *Agent) runsDir() string { return filepath.Join(a.opts.Dir, "runs") }

func (a *Agent) runDir(run tutti.RunID) string { return filepath.Join(a.runsDir(), string(run)) }

// poke makes the claim loop look again.
func (a *Agent) poke() { ring(a.wake) }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // it rings already
	}
}

func (a *Agent) ring(op string, payload []byte) {
	switch op {
	case wire.RingBeat:
		ring(a.beat)
	case wire.RingHello:
		a.exchange.due()
		ring(a.greet)
	case wire.RingClaim:
		a.poke()
	case wire.RingGate:
		ring(a.gate)
	case wire.RingLease:
		ring(a.lease)
	case wire.RingTrust:
		a.opts.Follow()
	case wire.RingRemote:
		a.ringRemote(payload)
	case wire.RingCancel:
		var c wire.CancelRun
		if json.Unmarshal(payload, &c) != nil {
			return
		}
		a.mu.Lock()
		defer a.mu.Unlock()
		if a.active != nil && a.active.id == c.Run {
			a.active.cancel(errCancelled)
		}
	}
}

func (a *Agent) beats(ctx context.Context) {
	ticker := time.NewTicker(a.opts.Beat)
	defer ticker.Stop()
	for {
		a.sendBeat(false)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-a.beat:
		}
	}
}

// sendBeat says that the agent is there, or (stopping) that it ends.
func (a *Agent) sendBeat(stopping bool) {
	beat := wire.Beat{
		Version: a.opts.Version, Puppet: a.known.puppet(), Trouble: errorText(a.trouble()), Warm: a.opts.Warm.Memory(), At: time.Now().UTC(),
		Stopping: stopping,
	}
	a.mu.Lock()
	if a.active != nil {
		beat.Run = a.active.id
	}
	a.mu.Unlock()
	if raw, err := json.Marshal(beat); err == nil {
		_ = a.opts.Bus.Send(wire.OpBeat, raw) // the next one follows
	}
}

// claims asks for work whenever there may be some, and does it.
func (a *Agent) claims(ctx context.Context) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	var held holdOff
	for idle := false; ; {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-a.wake:
		case <-retry.C:
		case ask := <-a.localAsks:
			if err := a.personsRun(ctx, ask); err != nil && ctx.Err() == nil {
				a.opts.Logger.Error("a local run", "error", err)
			}
		}
		if ctx.Err() != nil { // more than one of them was ready
			return context.Cause(ctx)
		}
		again := claimEvery
		busy, err := a.claimOne(ctx)
		a.setStuck(err)
		if tutti.CodeOf(err) == tutti.CodeUnauthenticated { // also of a result, behind which no claim comes
			a.Denied(err)
		}
		if err != nil && away(err) {
			again = min(again, a.safetyRuns(ctx))
		}
		switch {
		case errors.Is(err, errNotGreeted): // hello pokes
		case err != nil && ctx.Err() == nil:
			a.opts.Logger.Warn("no claim", "error", err)
			again = min(again, held.after(err))
		case busy:
			again, idle = 0, false
		case !idle:
			a.opts.Idle()
			idle = true
		}
		retry.Reset(again)
	}
}

func (a *Agent) setStuck(err error) {
	if err != nil && away(err) {
		err = nil // the server sees that itself
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stuck = err
}

// trouble is what the node cannot do until somebody helps.
func (a *Agent) trouble() error {
	if err := a.opts.Space(); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return errors.Join(a.notTaken, a.lost, a.stuck)
}

func (a *Agent) setLeaseTrouble(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.lost = err
}

// claimOne ends what was begun and asks once; it reports whether there was a run,
// which has then ended.
func (a *Agent) claimOne(ctx context.Context) (bool, error) {
	if err := a.loadBegun(); err != nil {
		return false, err
	}
	if any, err := a.recover(ctx); err != nil || any { // a Puppet that runs is followed whoever is away
		return any, err
	}
	if err := a.hearLocals(); err != nil { // which no order waits for
		a.opts.Logger.Error("a local run is not told yet", "error", err)
	}
	if !a.hasGreeted() {
		return false, errNotGreeted
	}
	if err := a.flush(ctx); err != nil {
		return false, err
	}
	claimed, err := a.claim(ctx)
	if err != nil {
		return false, err
	}
	if claimed.Order == nil {
		a.opts.Warm.Expect(claimed.Expect)
		return false, nil
	}
	if err := claimed.Order.Run.Validate(); err != nil {
		return false, err
	}
	if claimed.Order.Node != a.opts.Node {
		return false, tutti.Errorf(tutti.CodeRefused, "the server ordered a run of node %q from node %q", claimed.Order.Node, a.opts.Node)
	}
	killpoint.Here("agent.claimed")
	if err := a.execute(ctx, claimed); err != nil {
		return false, err
	}
	ring(a.lookAgain) // the run may have brought Puppet
	return true, a.flush(ctx)
}

// claim asks for the next order.
func (a *Agent) claim(ctx context.Context) (wire.Claimed, error) {
	trusts, listed := a.opts.Signers.Trusts(), a.opts.Acting.Listed()
	claimed, err := call[wire.Claimed](ctx, a, wire.OpClaim, wire.Claim{
		Version: a.opts.Version, Knows: tutti.Capabilities(), Begun: &a.begun.Fence, Seen: a.begun.Server, Trusts: &trusts, Operators: &listed,
	})
	if err != nil {
		a.noteDenied(err)
		return claimed, err
	}
	for _, epoch := range []tutti.Epoch{claimed.Position.Epoch, {Number: claimed.Fence.Epoch}} {
		if err := epoch.Plausible(a.begun.Server.Epoch, time.Now()); err != nil {
			return claimed, err
		}
	}
	a.toldAlone(claimed.Alone)
	if err := a.trust(claimed.Trust); err != nil {
		return claimed, err
	}
	if claimed.Operators != nil {
		if err := a.opts.Acting.Take(*claimed.Operators); err != nil {
			return claimed, tutti.Wrap("", err, "the server says which operators sign actions")
		}
	}
	return claimed, a.saw(claimed.Position)
}

// call asks the server and decodes its answer. Only where none is wanted (T is
// the empty struct) may it be empty.
func call[T any](ctx context.Context, a *Agent, op string, in any) (T, error) {
	var out T
	raw, err := json.Marshal(in)
	if err != nil {
		return out, err
	}
	reply, err := a.call(ctx, op, raw)
	if err != nil {
		return out, err
	}
	if _, none := any(out).(struct{}); none && len(reply) == 0 {
		return out, nil
	}
	return out, tutti.Wrap(tutti.CodeInternal, json.Unmarshal(reply, &out), "answer to %s", op)
}

// call asks the server, within the agent's patience.
func (a *Agent) call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.opts.Patience, tutti.Errorf(tutti.CodeUnavailable, "no answer to %s within %s", op, a.opts.Patience))
	defer cancel()
	reply, err := a.opts.Bus.Call(ctx, op, payload)
	if err == nil || !away(err) {
		a.reached()
	}
	return reply, err
}

// pointedBus is a bus with a point to be killed at before and after each call;
// a claim that finds nothing is none.
type pointedBus struct{ Bus }

func (b pointedBus) Call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	if op == wire.OpClaim {
		return b.Bus.Call(ctx, op, payload)
	}
	killpoint.Here("agent.calls", op)
	reply, err := b.Bus.Call(ctx, op, payload)
	if err == nil {
		killpoint.Here("agent.answered", op)
	}
	return reply, err
}

// away reports whether an error says that the server could not be asked, as
// opposed to that it said no.
func away(err error) bool {
	code := tutti.CodeOf(err)
	return code == tutti.CodeUnavailable || code == tutti.CodeDeadline || errors.Is(err, context.DeadlineExceeded)
}
