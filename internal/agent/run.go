package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// activeRun is the run that has the node now.
type activeRun struct {
	id     tutti.RunID
	cancel context.CancelCauseFunc
}

var (
	errCancelled = errors.New("cancelled by the server")
	errTimeout   = errors.New("the step's timeout")
)

// The method `hold` makes a run the active run until the caller calls the returned function `release`. If the run is
// cancelled, the returned context ends.
func (a *Agent) hold(ctx context.Context, run tutti.RunID) (held context.Context, release func()) {
	held, cancel := context.WithCancelCause(ctx)
	a.setActive(&activeRun{id: run, cancel: cancel})
	return held, func() {
		a.setActive(nil)
		cancel(nil)
	}
}

func (a *Agent) setActive(r *activeRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active = r
}

// The function `ours` returns the reason why the agent has ended the work of a context: cancelled
// or timed out. If the agent has not ended this work, the function returns nil.
func ours(ctx context.Context) error {
	if cause := context.Cause(ctx); errors.Is(cause, errCancelled) || errors.Is(cause, errTimeout) {
		return cause
	}
	return nil
}

// The method `execute` carries out a claimed order once. If the run's marker exists, execute
// follows the run and never starts it again. If execute returns no error, the run's result is on
// disk.
func (a *Agent) execute(ctx context.Context, claimed wire.Claimed) error {
	order := *claimed.Order
	dir := a.runDir(order.Run)
	switch {
	case hasFile(dir, sentFile):
		return a.sendAgain(ctx, dir, order.Run)
	case hasFile(dir, resultFile):
		return nil // the run has ended before; flush sends the result
	}
	ctx, release := a.hold(ctx, order.Run)
	defer release()
	spec, err := a.opts.Runner.Spec(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a.begin(ctx, dir, claimed)
	case err != nil:
		return endUnknown(ctx, a, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	return a.resume(ctx, dir, spec)
}

// begin starts a run that was not started before.
func (a *Agent) begin(ctx context.Context, dir string, claimed wire.Claimed) error {
	order := *claimed.Order
	had := hasFile(dir, wantedFile)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	if refused := a.mayBeginOnce(claimed, had); refused != "" {
		return a.end(ctx, dir, tutti.Result{Run: order.Run, Outcome: tutti.Interrupted, Message: refused})
	}
	if err := os.WriteFile(filepath.Join(dir, wantedFile), []byte(nextNumber(a.runsDir())), 0o600); err != nil {
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	if order.Diff {
		if err := os.WriteFile(filepath.Join(dir, diffFile), nil, 0o600); err != nil {
			return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
		}
	}
	killpoint.Here("agent.run-dir")
	if err := claimed.Validate(); err != nil {
		err = fmt.Errorf("%w; this agent (%s) cannot carry it out: upgrade tutti on %s", err, a.opts.Version, a.opts.Node)
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseRefused, err))
	}
	if err := a.opts.Space(); err != nil {
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	switch refused, err := a.mayBegin(order); {
	case err != nil:
		ring(a.lease) // the job that holds the node may have finished
		return err    // the run stays claimed, and the agent claims the order again
	case refused != "":
		return a.end(ctx, dir, tutti.Result{Run: order.Run, Outcome: tutti.Skipped, Message: refused})
	}
	var code ensured
	var err error
	if order.Program != tutti.ProgramAgent {
		code, err = a.fetch(ctx, order, !hasFile(dir, LocalFile))
	}
	killpoint.Here("agent.code")
	switch {
	case err == nil:
	case ours(ctx) != nil:
		return a.end(ctx, dir, tutti.Result{Run: order.Run, Outcome: tutti.Interrupted, Message: "cancelled before Puppet was started"})
	case away(err) || ctx.Err() != nil:
		return err // nothing has begun; the run stays claimed, and the agent claims the order again
	default:
		return a.end(ctx, dir, failed(order.Run, reasonFor(err), fmt.Errorf("code %s: %w", order.Code, err)))
	}
	owed, err := a.debts.owes(order.Mode)
	if err != nil {
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	if err := endedBefore(a, order.Run); err != nil {
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	spec := Spec{
		Order: order, Node: a.opts.Node, Owed: owed, EnvironmentPath: code.environments,
		Socket: filepath.Join(dir, "socket"), StartedAt: time.Now().UTC(), Clock: a.tick(),
	}
	sock, err := a.listen(dir, spec)
	if err != nil {
		return a.end(ctx, dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	killpoint.Here("agent.listens")
	var process Process
	if err = a.code.begun.begin(code.said); err == nil {
		err = a.beginOnce(claimed)
	}
	if err == nil {
		process, err = a.opts.Runner.Start(dir, spec)
	}
	killpoint.Here("agent.started")
	if err != nil { // the process may have begun
		if process, _ = a.opts.Runner.Adopt(dir); process == nil {
			sock.close()
			return endUnwatched(ctx, a, dir, spec, failed(order.Run, reasonFor(err), err))
		}
		a.opts.Logger.Warn("a run has begun, although its start failed", "run", order.Run, "error", err)
	}
	a.opts.Logger.Info("run begins", "run", order.Run, "job", order.Job, "mode", order.Mode)
	return a.follow(ctx, dir, spec, process, sock)
}

// fetch makes the code of the order the present code of the environment, within the step's timeout.
func (a *Agent) fetch(ctx context.Context, order tutti.Order, ordered bool) (ensured, error) {
	if order.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, order.Timeout)
		defer cancel()
	}
	return a.code.ensure(ctx, order, ordered)
}

// lookEvery is how often the agent looks for Puppet processes that take no lock.
const lookEvery = time.Second

// watchStrangers looks for a Puppet that takes no lock, until ctx ends, and notes the first one. The
// agent gets no event when a process begins. The agent therefore does not see a process that begins
// and ends between two looks.
func (a *Agent) watchStrangers(ctx context.Context, sock *socket) {
	for err := error(nil); err == nil && !sock.book.overlapped(); err = pause(ctx, lookEvery) {
		found, _ := a.opts.Runner.Strangers()
		if len(found) == 0 {
			continue
		}
		a.opts.Logger.Warn("another Puppet runs at the same time as the run and takes no lock", "run", sock.spec.Order.Run, "commands", found)
		if err := sock.book.write(entry{Overlapped: found}); err != nil {
			a.opts.Logger.Error("the run's book cannot be written", "run", sock.spec.Order.Run, "error", err)
		}
	}
}

// resume continues a run that an earlier agent started.
func (a *Agent) resume(ctx context.Context, dir string, spec Spec) error {
	process, err := a.opts.Runner.Adopt(dir)
	if err != nil {
		return endUnwatched(ctx, a, dir, spec, failed(spec.Order.Run, tutti.BecauseMachinery, err))
	}
	if process == nil {
		return a.conclude(ctx, dir, spec, nil)
	}
	sock, err := a.listen(dir, spec)
	if err != nil {
		return err
	}
	a.opts.Logger.Info("following a run on", "run", spec.Order.Run)
	return a.follow(ctx, dir, spec, process, sock)
}

// killDeadline is how long the agent waits for the end of a process that it has
// killed.
const killDeadline = time.Minute

// The method `follow` serves a run until its process is gone, then concludes the run. If the agent
// ends first, the process and its marker stay for the next agent.
func (a *Agent) follow(ctx context.Context, dir string, spec Spec, process Process, sock *socket) error {
	if spec.Order.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, spec.StartedAt.Add(spec.Order.Timeout), errTimeout)
		defer cancel()
	}
	// If the agent ends a run, keep serving the run, so that the run can send its last messages.
	serveCtx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var serving sync.WaitGroup
	serving.Go(func() { sock.serve(serveCtx) })
	if !sock.local {
		serving.Go(func() { a.opts.Runner.Follow(serveCtx, dir, spec.Order.Run, a.sendLive) })
	}
	serving.Go(func() { a.watchStrangers(serveCtx, sock) })
	err := process.Wait(ctx)
	killpoint.Here("agent.process-ended")
	leaves := ctx.Err() != nil && ours(ctx) == nil
	if err != nil && !leaves {
		a.opts.Logger.Warn("ending a run", "run", spec.Order.Run, "because", err)
		killCtx, cancel := context.WithTimeout(serveCtx, killDeadline)
		if killErr := process.Kill(killCtx); killErr != nil {
			a.opts.Logger.Error("a run could not be killed", "run", spec.Order.Run, "error", killErr)
		}
		cancel()
	}
	stop()
	sock.listener.Close()
	serving.Wait()
	sock.close()
	if leaves {
		return context.Cause(ctx)
	}
	return a.conclude(ctx, dir, spec, err)
}

// conclude judges a run that is over, and puts its result into the outbox. The argument `why` is
// set if the agent ended the run.
func (a *Agent) conclude(ctx context.Context, dir string, spec Spec, why error) error {
	out := a.opts.Runner.Judge(dir, spec.Order.Run)
	out.Clock = spec.Clock
	local := hasFile(dir, LocalFile)
	if !local && !spec.Order.Diff { // other code may have other facts
		a.collectFacts(dir)
	}
	if out.StartedAt.IsZero() || spec.StartedAt.Before(out.StartedAt) {
		out.StartedAt = spec.StartedAt // the process began before its first message
	}
	if out.EndedAt.Before(out.StartedAt) {
		out.EndedAt = out.StartedAt
	}
	if spec.Order.Mode == tutti.ModeApply {
		owed, err := a.debts.settle(dir, spec.Order.Run)
		if err != nil { // the agent writes no result to disk, so the next agent counts again what this run owes
			a.debts.postpone(dir)
			return tell(ctx, a, dir, unrecorded(out, err), err)
		}
		out.Owed = owed.told()
	}
	book, err := openBook(dir)
	if err != nil {
		return a.end(ctx, dir, unrecorded(out, err))
	}
	defer book.close()
	record, err := book.record(spec)
	if err != nil {
		return a.end(ctx, dir, unrecorded(out, err))
	}
	if !local {
		a.noteApplied(spec, out, record)
	}
	out.AskedMore = book.askedMore(record)
	unanswered := book.unanswered()
	out.Degraded, out.Overlapped = book.degraded(), book.overlapped()
	out.Clock = book.clock(out.Clock)
	switch {
	case errors.Is(why, errTimeout):
		out.Outcome, out.Reason = tutti.Failed, tutti.BecauseTimeout
		out.Message = fmt.Sprintf("ended after its timeout of %s, in phase %s", spec.Order.Timeout, out.Phase)
	case errors.Is(why, errCancelled):
		out.Outcome, out.Reason, out.Message = tutti.Interrupted, "", "cancelled in phase "+out.Phase
	case out.Reason == tutti.BecauseCompile && len(unanswered) > 0:
		out.Outcome, out.Reason, out.Waits = tutti.Waiting, "", tutti.RoomForWaits(unanswered)
		out.Message = fmt.Sprintf("no answer to %s: the server is away, and the question was never answered before", unanswered[0].Query)
	}
	return a.end(ctx, dir, out)
}

// The method `end` writes the result. From then on the run is in the outbox. If the disk is full,
// the method sends the result to the server at once. Without this message, the run would look as if
// it were still going on.
func (a *Agent) end(ctx context.Context, dir string, result tutti.Result) error {
	if result.StartedAt.IsZero() {
		result = over(result)
	}
	killpoint.Here("agent.judged")
	a.opts.Logger.Info("run ended", "run", result.Run, "outcome", result.Outcome, "reason", result.Reason)
	if err := keepResult(dir, result); err != nil {
		return tell(ctx, a, dir, result, err)
	}
	return nil
}

// keepResult writes to disk the files that belong to a result, and then the result.
func keepResult(dir string, result tutti.Result) error {
	err := durable.SyncFiles(dir, parts...)
	if err == nil {
		err = writeSealed(filepath.Join(dir, resultFile), ended{result, digests(dir)})
	}
	return err
}

// endedBefore returns an error if a run without a result on disk began before this run. After a
// restart, the agent counts the refreshes of the earlier run again. If the next run had ended
// before this second count, the count would be wrong. If only the server has the result of the
// earlier run, endedBefore now writes this result to disk.
func endedBefore(a *Agent, next tutti.RunID) error {
	dirs, err := a.runDirs()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		run := tutti.RunID(filepath.Base(dir))
		if run == next || hasFile(dir, sentFile) || hasFile(dir, resultFile) {
			continue
		}
		if _, err := a.opts.Runner.Spec(dir); errors.Is(err, fs.ErrNotExist) {
			continue // the run never began
		}
		result, told := a.told[run]
		if !told {
			return tutti.Errorf(tutti.CodeConflict, "run %s has begun before, and its result is not on disk yet", run)
		}
		err := keepResult(dir, result)
		if err == nil {
			err = writeSealed(filepath.Join(dir, sentFile), map[string]string{})
		}
		if err != nil {
			return fmt.Errorf("store the result of the earlier run %s: %w", run, err)
		}
		delete(a.told, run)
	}
	return nil
}

// The function `tell` sends the result of a run to the server at once, because the agent cannot write
// the result to disk. The argument `why` is the disk's error.
func tell(ctx context.Context, a *Agent, dir string, result tutti.Result, why error) error {
	if result.Outcome == tutti.Interrupted && ours(ctx) == nil {
		// Perhaps nobody killed the process. The process may have ended by itself, but could not
		// write this to the disk.
		result.Outcome, result.Reason = tutti.Failed, tutti.BecauseMachinery
		result.Message += ", or could not write its progress: " + why.Error()
	}
	if hasFile(dir, LocalFile) { // the server does not wait for a local run
		err := fmt.Errorf("store the result of local run %s: %w", result.Run, why)
		if a.unheard.heard(err) {
			ring(a.beat)
		}
		return err
	}
	tells, sendErr := told{Result: result}, error(nil)
	if hasFile(dir, publishFile) {
		sendErr = a.sendPublished(context.WithoutCancel(ctx), dir, &tells, false)
	}
	if errors.Is(sendErr, errDamaged) {
		tells.Result, sendErr = unrecorded(tells.Result, sendErr), nil
	}
	if sendErr == nil {
		_, sendErr = call[struct{}](context.WithoutCancel(ctx), a, wire.OpResult, tells.Result)
	}
	if sendErr != nil {
		return fmt.Errorf("store the result of run %s: %w", result.Run, why)
	}
	a.opts.Logger.Error("a result could not be stored here, but the server has it", "run", result.Run, "error", why)
	a.told[result.Run] = result
	return nil
}

// The function `unrecorded` returns the result of a run whose record cannot be read. The result is
// not good, because nobody can find out later what the run has read.
func unrecorded(out tutti.Result, err error) tutti.Result {
	if out.Outcome.Good() || out.Stopped {
		out.Outcome, out.Reason, out.Stopped = tutti.Failed, tutti.BecauseMachinery, false
		out.Message = err.Error()
	} else {
		out.Message += "; " + err.Error()
	}
	return out
}

func failed(run tutti.RunID, why tutti.Reason, err error) tutti.Result {
	return tutti.Result{Run: run, Outcome: tutti.Failed, Reason: why, Message: err.Error()}
}

func reasonFor(err error) tutti.Reason {
	if tutti.CodeOf(err) == tutti.CodeRefused {
		return tutti.BecauseRefused
	}
	return tutti.BecauseMachinery
}

// The method `recover` follows or concludes the runs that earlier agents left. The method reports
// whether there were any runs of earlier agents.
func (a *Agent) recover(ctx context.Context) (bool, error) {
	dirs, err := a.runDirs()
	if err != nil {
		return false, err
	}
	any := false
	for _, dir := range dirs {
		run := tutti.RunID(filepath.Base(dir))
		if _, told := a.told[run]; told || hasFile(dir, resultFile) || hasFile(dir, sentFile) {
			continue
		}
		spec, err := a.opts.Runner.Spec(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the run never began; if the server still wants the run, the agent claims it again
		}
		any = true
		if err != nil {
			err = endUnknown(ctx, a, dir, failed(run, tutti.BecauseMachinery, fmt.Errorf("nobody knows what was started: %w", err)))
		} else {
			held, release := a.hold(ctx, run)
			err = a.resume(held, dir, spec)
			release()
		}
		if err != nil {
			return any, err
		}
	}
	return any, nil
}

func hasFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
