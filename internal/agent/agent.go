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
	// Call sends a request and waits for the answer. CodeUnavailable: the server is away. If no answer came, Call
	// returns an error.
	Call(ctx context.Context, op string, payload []byte) ([]byte, error)
	// Send sends a message that may be lost.
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
	// Kill ends the process and all that it started.
	Kill(ctx context.Context) error
}

// Runner is the node's Puppet.
type Runner interface {
	// Start writes the durable marker into the run's directory, then starts Puppet. CodeNotFound: Puppet is not
	// installed.
	Start(dir string, spec Spec) (Process, error)
	// Spec returns the content of the marker; os.ErrNotExist: there is no marker.
	Spec(dir string) (Spec, error)
	// Adopt returns the process that an earlier agent started, nil if the process is gone.
	Adopt(dir string) (Process, error)
	// Follow yields what happens inside the run, until ctx ends.
	Follow(ctx context.Context, dir string, run tutti.RunID, yield func([]tutti.Live))
	// Judge says how the run ended.
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
	Clock           tutti.Clock // the node's clock at StartedAt
}

// Options are what an agent needs. Zero durations take the defaults.
type Options struct {
	Dir     string // the agent's state, on a disk that survives
	Node    tutti.NodeName
	Bus     Bus
	Machine tutti.Digest // see tutti.Hello
	Runner  Runner
	Signers Signers
	Boxes   Boxes // open secrets; nil: no secret is opened
	Logger  *slog.Logger
	Version string
	// Space returns an error if there is no room to begin a run; nil: there is always room.
	Space func() error
	// Local is the node's Puppet for the remote control, Allow is the node's policy. If one is nil, no question is
	// answered.
	Local Local
	Allow func(policy.Question) (allowed bool, because string)
	// Acting knows the operators who sign what the remote control changes; nil: there is no list of operators.
	Acting Acting
	// Switch is how exclusive jobs keep other Puppets away; nil: exclusive jobs are not served.
	Switch Switch
	// Witness sees the runs that others start; nil: such runs are not seen.
	Witness Witness

	// Facts sees which facts the node has after its runs; nil: facts are not looked at. FactsEvery is how often Facts
	// looks although no change was seen; 0: never.
	Facts      Facts
	FactsEvery time.Duration

	// Warm has Puppet loaded for runs to come; nil: nothing is loaded.
	Warm Warm

	// Idle is called when a claim brings no run for the first time, and for the first time after a run; may be nil.
	Idle func()

	// Follow is called when the server may want the node to follow other keys: after each exchange of the ticket, and
	// when the server rings. It must not block; may be nil.
	Follow func()

	// ServeLocal lets root on this machine begin runs without the server.
	ServeLocal bool

	// Compile is the socket for the Puppet Server on this node; nil: there is no such socket.
	Compile *CompileSocket

	Beat     time.Duration // between heartbeats; 5 s
	Patience time.Duration // how long to wait for one answer, and for an absent server before the last known answers are used; 30 s
	KeepRuns int           // directories of ended runs that are kept; 20
	Refusals int           // how often the server may refuse a result for a reason of its own, a second or more apart, before it is given up; 10
}

// Warm loads Puppet before there is a run.
type Warm interface {
	// Expect is told, after each claim without a run, what may follow.
	Expect(e wire.Expectation)
	// Memory is how much memory the loaded Puppet uses now, in bytes.
	Memory() int64
}

// cold loads nothing.
type cold struct{}

func (cold) Expect(wire.Expectation) {}
func (cold) Memory() int64           { return 0 }

// Agent runs Puppet when the server says so. Callers use Run and Denied. The other methods are for the agent itself.
type Agent struct {
	opts   Options
	code   codeStore
	known  knownAnswers
	wake   chan struct{} // there may be a run to claim
	gate   chan struct{} // the gate of the run that is held may have decided
	lease  chan struct{} // an exclusive job asks for a report of the node
	greet  chan struct{} // the ticket must be exchanged
	beat   chan struct{} // the server asks for a heartbeat now
	remote chan tutti.RemoteRequest
	// lookAgain says that Puppet may have left another report, or that the outbox can be sent.
	lookAgain chan struct{}
	boxing    sync.Mutex    // only one rotation of the node's key for secrets at a time
	collects  chan struct{} // facts are being collected after a run
	tellAgain chan struct{} // the server may not know which facts there are
	exchange  *exchange
	told      map[tutti.RunID]bool // runs that have ended, but whose result could not be written to disk
	refusals  refusals             // belongs to the claim loop
	begun     begun                // as on disk, or newer; belongs to the claim loop
	takenMu   sync.Mutex           // guards ActionsFile
	mu        sync.Mutex
	active    *activeRun
	stuck     error // why the last claim failed; nil if only the server was away
	unnoted   error // why runs that the server did not order could not be noted
	lost      error // trouble with a lease: its note is damaged, or Puppet cannot be enabled
	greeted   bool  // the ticket is exchanged
	notTaken  error // why the server does not take this machine for the node

	hearing   sync.Mutex // puts one run at a time into the outbox
	clockMu   sync.Mutex // guards ClockFile
	heardAt   map[tutti.RunID]time.Time
	localAsks chan localAsk
	aloneMu   sync.Mutex
	alone     Alone
	aloneAt   time.Time // Alone.Reached as it is on disk
}

const (
	defaultBeat     = 5 * time.Second
	defaultPatience = 30 * time.Second
	defaultKeepRuns = 20
	defaultRefusals = 10
	claimEvery      = 30 * time.Second
	retryAfter      = time.Second
	firstLook       = 10 * time.Second
	holdAfter       = 5 * time.Second // a held run asks its gate again after this time, if no doorbell rings before
)

var errNotGreeted = tutti.Errorf(tutti.CodeUnavailable, "the ticket is not exchanged yet")

// New returns an agent that has not started.
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

// Run serves until ctx ends. A Puppet that runs at that time goes on, and the next agent finds it.
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
		ring(a.greet) // the rest follows after the exchange
	})
	compiles, err := a.listenCompile()
	if err != nil { // the node's own runs do not need this socket
		a.opts.Logger.Error("nobody can compile here for other nodes", "error", err)
	}
	var local net.Listener
	if a.opts.ServeLocal {
		if local, err = a.listenLocal(); err != nil { // orders do not need this socket
			a.opts.Logger.Error("nobody can begin a run on this machine", "error", err)
		}
	}
	told := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer func() {
		beside.Wait()
		if told.Err() != nil {
			a.sendBeat(true) // the last message of this agent
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
	select { // our next run replaces the report that is there, so look at the report first
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

// sendBeat sends a heartbeat. stopping says that the agent ends.
func (a *Agent) sendBeat(stopping bool) {
	beat := wire.Beat{
		Version: a.opts.Version, Puppet: a.known.puppet(), Trouble: errorText(a.trouble()), Warm: a.opts.Warm.Memory(), At: time.Now().UTC(),
		Stopping: stopping,
	}
	a.mu.Lock()
	beat.Unnoted = errorText(a.unnoted)
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
		if ctx.Err() != nil { // several channels were ready
			return context.Cause(ctx)
		}
		again := claimEvery
		busy, err := a.claimOne(ctx)
		a.setStuck(err)
		if tutti.CodeOf(err) == tutti.CodeUnauthenticated { // also if a result was refused, after which no claim follows
			a.Denied(err)
		}
		if err != nil && away(err) {
			again = min(again, a.safetyRuns(ctx))
		}
		switch {
		case errors.Is(err, errNotGreeted): // hello calls poke after the exchange
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

// trouble is what the node cannot do until a person helps.
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

// claimOne ends the runs that were begun, then claims once. It reports whether there was a run. That run has then
// ended.
func (a *Agent) claimOne(ctx context.Context) (bool, error) {
	if err := a.loadBegun(); err != nil {
		return false, err
	}
	if any, err := a.recover(ctx); err != nil || any { // a Puppet that runs is followed even if the server is away
		return any, err
	}
	if err := a.hearLocals(); err != nil { // no order waits for this
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
	ring(a.lookAgain) // the run may have installed Puppet
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

// call asks the server and decodes its answer. The answer may be empty only if T is the empty struct.
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

// pointedBus is a bus with kill points before and after each call. A claim that finds nothing has no kill point.
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

// away reports whether an error says that the server could not be asked. False: the server has answered no.
func away(err error) bool {
	code := tutti.CodeOf(err)
	return code == tutti.CodeUnavailable || code == tutti.CodeDeadline || errors.Is(err, context.DeadlineExceeded)
}
