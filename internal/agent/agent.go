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
	"sync/atomic"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/internal/policy"
	"github.com/tutti-project/tutti/wire"
)

// Bus is the node's connection to the server.
type Bus interface {
	// Call sends a request and waits for the answer. Call returns CodeUnavailable if the server is
	// away. If no answer came, Call returns an error.
	Call(ctx context.Context, op string, payload []byte) ([]byte, error)
	// Send sends a message that may be lost.
	Send(op string, payload []byte) error
	OnRing(func(op string, payload []byte)) error
	OnConnect(func())
	// SetTicket sets the ticket that each later message carries (see tutti.Hello).
	SetTicket(ticket string)
}

// Process is a running Puppet process.
type Process interface {
	// Wait returns nil when the process is gone.
	Wait(ctx context.Context) error
	// Kill ends the process and every process that it started.
	Kill(ctx context.Context) error
}

// Runner is the node's Puppet.
type Runner interface {
	// Start writes the durable marker into the run's directory, then starts Puppet. Start
	// returns CodeNotFound if Puppet is not installed.
	Start(dir string, spec Spec) (Process, error)
	// Spec returns the content of the marker. Spec returns os.ErrNotExist if there is no
	// marker.
	Spec(dir string) (Spec, error)
	// Adopt returns the process that an earlier agent started. Adopt returns nil if the
	// process is gone.
	Adopt(dir string) (Process, error)
	// Follow yields the live messages of the run, until ctx ends.
	Follow(ctx context.Context, dir string, run tutti.RunID, yield func([]tutti.Live))
	// Judge determines how the run ended.
	Judge(dir string, run tutti.RunID) tutti.Result
	// Refreshes returns the resources that still need a refresh after the run, and those that no
	// longer need one.
	Refreshes(dir string) (Refreshes, error)
	// Strangers lists the Puppet processes that take no lock.
	Strangers() ([]string, error)
}

// Spec describes a run to the runner.
type Spec struct {
	Order           tutti.Order
	Node            tutti.NodeName
	EnvironmentPath string
	Socket          string
	StartedAt       time.Time
	Clock           tutti.Clock // the node's clock at StartedAt
	Owed            []string    // resources whose refresh an earlier run owes
}

// Options are what an agent needs. Zero durations take the defaults.
type Options struct {
	Dir     string // directory of the agent's state, on a disk that survives a reboot
	Node    tutti.NodeName
	Bus     Bus
	Machine tutti.Digest // see tutti.Hello
	Runner  Runner
	Signers Signers
	Boxes   Boxes // open secrets; if Boxes is nil, the node opens no secret
	Logger  *slog.Logger
	Version string
	// Space returns an error if there is no room to begin a run. If Space is nil, there is
	// always room.
	Space func() error
	// Local is the node's Puppet for the remote control. Allow is the node's policy. If Local or Allow
	// is nil, the node answers no question.
	Local Local
	Allow func(policy.Question) (allowed bool, because string)
	// Acting checks the operators' signatures on the changes that the remote control requests.
	// Acting is nil if there is no list of operators.
	Acting Acting
	// Switch disables other Puppets for exclusive jobs. If Switch is nil, the node takes part
	// in no exclusive job.
	Switch Switch
	// Witness sees the Puppet runs that others start. If Witness is nil, the agent
	// does not see such runs.
	Witness Witness

	// Files reads what Puppet's own files say. Each heartbeat reports this. If Files is nil, the heartbeats say
	// nothing about Puppet's files.
	Files func() (tutti.PuppetFiles, error)

	// Facts collects the node's facts after its runs. If Facts is nil, the agent does not look at
	// facts. FactsEvery is how often the agent collects facts even if it saw no change. If FactsEvery
	// is 0, the agent collects facts only after changes.
	Facts      Facts
	FactsEvery time.Duration

	// Warm loads Puppet before the next run. If Warm is nil, the agent loads
	// nothing in advance.
	Warm Warm

	// Idle is called at the first claim that brings no run: once after the agent's start, and once
	// after each run. Idle may be nil.
	Idle func()

	// Follow is called when the server may want the node to follow other keys. The server may
	// want other keys after each exchange of the ticket, and when the server rings. Follow must
	// not block. It may be nil.
	Follow func()

	// ServeLocal lets root on this machine begin runs without the server.
	ServeLocal bool

	// Compile is the socket for the Puppet Server on this node. Compile is nil if there is no
	// such socket.
	Compile *CompileSocket

	Beat     time.Duration // time between heartbeats; the default is 5 s
	Patience time.Duration
	KeepRuns int // how many directories of ended runs the agent keeps; the default is 20
	Refusals int
}

// Warm loads Puppet before there is a run.
type Warm interface {
	// Expect is called after each claim that brings no run, with the run that may
	// follow.
	Expect(e wire.Expectation)
	// Memory is how much memory the loaded Puppet uses now, in bytes.
	Memory() int64
}

// The type `cold` is a Warm that loads nothing.
type cold struct{}

func (cold) Expect(wire.Expectation) {}
func (cold) Memory() int64           { return 0 }

// Agent runs Puppet when the server orders a run. Callers use Run and Denied. The other methods are for
// the agent itself.
type Agent struct {
	opts   Options
	code   codeStore
	known  knownAnswers
	wake   chan struct{} // there may be a run to claim
	gate   chan struct{} // the gate of the held run may have decided
	lease  chan struct{} // an exclusive job asks for a report about the node
	greet  chan struct{} // the ticket must be exchanged
	beat   chan struct{} // the server asks for a heartbeat now
	remote chan tutti.RemoteRequest
	// lookAgain signals that Puppet may have left another report, or that the agent can send
	// its outbox.
	lookAgain chan struct{}
	boxing    sync.Mutex            // allows only one rotation of the node's key for secrets at a time
	collects  chan struct{}         // facts are being collected after a run
	tellAgain chan struct{}         // the server may not have the node's present facts
	wanted    atomic.Pointer[wants] // nil if the server wants no inventory
	exchange  *exchange
	told      map[tutti.RunID]tutti.Result // results that the server has and that are not on disk yet; only the claim loop uses this map
	debts     ledger                       // only the claim loop uses it
	refusals  refusals                     // only the claim loop uses it
	begun     begun                        // the content of BegunFile, or newer content that is not on disk yet; only the claim loop uses it
	takenMu   sync.Mutex                   // guards ActionsFile
	mu        sync.Mutex
	active    *activeRun
	stuck     error   // the reason why the last claim failed; nil if only the server was away
	unnoted   error   // why the agent could not store the runs that the server did not order
	unheard   unheard // local runs that the server does not know
	lost      error   // a problem with a lease: the file with its note is damaged, or Puppet cannot be enabled
	greeted   bool    // the ticket is exchanged
	notTaken  error   // the reason why the server refuses this machine

	hearing    sync.Mutex // lets only one run at a time into the outbox
	clockMu    sync.Mutex // guards ClockFile
	heardAt    map[tutti.RunID]time.Time
	localAsks  chan localAsk
	instructed atomic.Bool // the server has answered a claim of this agent
	aloneMu    sync.Mutex
	alone      Alone
	aloneAt    time.Time // the value of Alone.Reached on disk
}

const (
	defaultBeat     = 5 * time.Second
	defaultPatience = 30 * time.Second
	defaultKeepRuns = 20
	defaultRefusals = 10
	claimEvery      = 30 * time.Second
	retryAfter      = time.Second
	firstLook       = 10 * time.Second
	holdAfter       = 5 * time.Second // a held run asks its gate again after this time, or when the doorbell rings
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

		told: map[tutti.RunID]tutti.Result{}, heardAt: map[tutti.RunID]time.Time{}, exchange: exchange,
	}
	a.debts.dir, a.debts.runner = opts.Dir, opts.Runner
	a.code = codeStore{
		dir: opts.Dir, call: opts.Bus.Call, signers: opts.Signers, needs: a.needsCode,
		begun: &counters{path: filepath.Join(opts.Dir, SignedFile)},
	}
	return a
}

// Run serves until ctx ends. If a Puppet is running when Run returns, this Puppet continues, and
// the next agent finds it.
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
		ring(a.greet) // all other work begins after the exchange of the ticket
	})
	compiles, err := a.listenCompile()
	if err != nil { // the node's own runs do not need this socket
		a.opts.Logger.Error("the compile socket cannot be opened: this host cannot compile for other nodes", "error", err)
	}
	var local net.Listener
	if a.opts.ServeLocal {
		if local, err = a.listenLocal(); err != nil { // orders do not need this socket
			a.opts.Logger.Error("the local socket cannot be opened: a person cannot begin a run here", "error", err)
		}
	}
	told := ctx
	ctx, cancel := context.WithCancelCause(ctx)
	var beside sync.WaitGroup
	defer func() {
		beside.Wait()
		if told.Err() != nil {
			a.sendBeat(true) // send the last message of this agent
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
	select { // the next run of Tutti replaces the present report, so look at this report first
	case <-looked:
	case <-ctx.Done():
	case <-time.After(firstLook):
	}
	return a.claims(ctx)
}

func (a *Agent) runsDir() string { return filepath.Join(a.opts.Dir, "runs") }

func (a *Agent) runDir(run tutti.RunID) string { return filepath.Join(a.runsDir(), string(run)) }

// poke makes the claim loop look for work again.
func (a *Agent) poke() { ring(a.wake) }

func ring(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default: // the channel already contains a signal
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

// sendBeat sends a heartbeat. The argument `stopping` is true if the agent ends.
func (a *Agent) sendBeat(stopping bool) {
	beat := wire.Beat{
		Version: a.opts.Version, Puppet: a.known.puppet(), Trouble: errorText(a.trouble()), Warm: a.opts.Warm.Memory(), At: time.Now().UTC(),
		Stopping: stopping,
	}
	a.mu.Lock()
	beat.Unnoted = errorText(errors.Join(a.unnoted, a.unheard.why()))
	if a.active != nil {
		beat.Run = a.active.id
	}
	a.mu.Unlock()
	if a.opts.Files != nil {
		if files, err := a.opts.Files(); err == nil {
			beat.Files = &files
		}
	}
	if raw, err := json.Marshal(beat); err == nil {
		_ = a.opts.Bus.Send(wire.OpBeat, raw) // if this heartbeat is lost, the next one follows
	}
}

// The method `claims` asks the server for work whenever there may be work, and does the work.
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
		if ctx.Err() != nil { // if other channels are ready, too, select may choose one of them
			return context.Cause(ctx)
		}
		again := claimEvery
		busy, err := a.claimOne(ctx)
		a.setStuck(err)
		if tutti.CodeOf(err) == tutti.CodeUnauthenticated { // also true if the server has refused a result; after such a refusal, the agent makes no claim
			a.Denied(err)
		}
		if err != nil && away(err) {
			again = min(again, a.safetyRuns(ctx))
		}
		switch {
		case errors.Is(err, errNotGreeted): // after the exchange of the ticket, the method `hellos` wakes this loop
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
		err = nil // report nothing, because the server itself notices that the node is away
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.stuck = err
}

// trouble returns the problems that need a person's help.
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

// claimOne first ends the runs that have already begun. If there are none, it makes one claim. The
// method reports whether there was a run, either begun or claimed. When claimOne returns, this run
// has ended.
func (a *Agent) claimOne(ctx context.Context) (bool, error) {
	if err := a.loadBegun(); err != nil {
		return false, err
	}
	if any, err := a.recover(ctx); err != nil || any { // follow a running Puppet even if the server is away
		return any, err
	}
	if err := a.hearLocals(); err != nil { // orders do not wait for the reports of local runs
		a.opts.Logger.Error("a local run is not reported to the server yet", "error", err)
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

// The method `claim` asks for the next order.
func (a *Agent) claim(ctx context.Context) (wire.Claimed, error) {
	asked, trusts, listed := time.Now(), a.opts.Signers.Trusts(), a.opts.Acting.Listed()
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
	a.wanted.Store(wantsOf(claimed.Inventory, asked))
	if err := a.trust(claimed.Trust); err != nil {
		return claimed, err
	}
	if claimed.Operators != nil {
		if err := a.opts.Acting.Take(*claimed.Operators); err != nil {
			return claimed, tutti.Wrap("", err, "the list of operators who sign actions")
		}
	}
	return claimed, a.saw(claimed.Position)
}

// The function `call` asks the server and decodes its answer. The answer may be empty only if T is
// the empty struct.
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

// The method `call` sends a request to the server and waits for the answer as long as the agent's
// patience lasts.
func (a *Agent) call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, a.opts.Patience, tutti.Errorf(tutti.CodeUnavailable, "no answer to %s within %s", op, a.opts.Patience))
	defer cancel()
	reply, err := a.opts.Bus.Call(ctx, op, payload)
	if err == nil || !away(err) {
		a.reached()
	}
	return reply, err
}

// pointedBus is a bus with kill points before and after each call. A claim that finds no order has no kill
// point.
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

// The function `away` reports whether an error means that the server has not answered the request.
// Other errors mean that the server has refused the request.
func away(err error) bool {
	code := tutti.CodeOf(err)
	return code == tutti.CodeUnavailable || code == tutti.CodeDeadline || errors.Is(err, context.DeadlineExceeded)
}
