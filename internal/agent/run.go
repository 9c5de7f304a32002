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
)

// activeRun is the run that has the node.
type activeRun struct {
	spec   Spec
	dir    string
	cancel context.CancelCauseFunc
}

var (
	errCancelled = errors.New("cancelled by the server")
	errTimeout   = errors.New("the step's timeout")
)

const lookEvery = time.Second

// execute does what an order says, once: a run whose marker is there is
// followed on and never started again. When it returns without an error, the
// run's result is on disk.
func (a *Agent) execute(ctx context.Context, order tutti.Order) error {
	dir := a.runDir(order.Run)
	if _, err := os.Stat(filepath.Join(dir, resultFile)); err == nil {
		return nil // ended before; flush sends it
	}
	spec, err := a.opts.Runner.Spec(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return a.begin(ctx, dir, order)
	case err != nil:
		return a.end(dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	return a.resume(ctx, dir, spec)
}

// begin starts a run that nobody has started.
func (a *Agent) begin(ctx context.Context, dir string, order tutti.Order) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	environments, err := a.code.ensure(ctx, order)
	if err != nil {
		if away(err) || ctx.Err() != nil {
			return err // nothing has begun; the order stays claimed and is asked for again
		}
		return a.end(dir, failed(order.Run, reasonFor(err), fmt.Errorf("code %s: %w", order.Code, err)))
	}
	spec := Spec{
		Order: order, Node: a.opts.Node, EnvironmentPath: environments,
		Socket: filepath.Join(dir, "socket"), StartedAt: time.Now().UTC(),
	}
	sock, err := a.listen(dir, spec)
	if err != nil {
		return a.end(dir, failed(order.Run, tutti.BecauseMachinery, err))
	}
	process, err := a.opts.Runner.Start(dir, spec)
	if err != nil {
		sock.close()
		return a.end(dir, failed(order.Run, reasonFor(err), err))
	}
	return a.follow(ctx, dir, spec, process, sock)
}

// resume goes on with a run that an earlier agent started.
func (a *Agent) resume(ctx context.Context, dir string, spec Spec) error {
	process, err := a.opts.Runner.Adopt(dir)
	if err != nil {
		return a.end(dir, failed(spec.Order.Run, tutti.BecauseMachinery, err))
	}
	if process == nil {
		return a.conclude(dir, spec, nil)
	}
	sock, err := a.listen(dir, spec)
	if err != nil {
		return err
	}
	a.opts.Logger.Info("following a run on", "run", spec.Order.Run)
	return a.follow(ctx, dir, spec, process, sock)
}

// follow serves a run until its process is gone, then concludes it. If ctx
// ends, the process and its marker stay for the next agent.
func (a *Agent) follow(ctx context.Context, dir string, spec Spec, process Process, sock *socket) error {
	runCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	a.setActive(&activeRun{spec: spec, dir: dir, cancel: cancel})
	defer a.setActive(nil)
	if spec.Order.Timeout > 0 {
		timer := time.AfterFunc(time.Until(spec.StartedAt.Add(spec.Order.Timeout)), func() { cancel(errTimeout) })
		defer timer.Stop()
	}
	var serving sync.WaitGroup
	serveCtx, stop := context.WithCancel(ctx)
	serving.Go(func() { sock.serve(serveCtx) })
	serving.Go(func() { a.opts.Runner.Follow(serveCtx, dir, spec.Order.Run, a.sendLive) })
	serving.Go(func() { a.watchStrangers(serveCtx, sock) })
	err := process.Wait(runCtx)
	if err != nil && ctx.Err() == nil {
		// Ended by us: cancelled or out of time.
		a.opts.Logger.Warn("ending a run", "run", spec.Order.Run, "because", err)
		if killErr := process.Kill(ctx); killErr != nil {
			a.opts.Logger.Error("a run could not be ended", "run", spec.Order.Run, "error", killErr)
		}
	}
	stop()
	serving.Wait()
	sock.close()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return a.conclude(dir, spec, err)
}

// watchStrangers looks, until ctx ends, for a Puppet that takes no lock, and
// notes the first one. Nobody tells us of a process that begins; one that came
// and went between two looks is not seen.
func (a *Agent) watchStrangers(ctx context.Context, sock *socket) {
	for err := error(nil); err == nil && !sock.book.overlapped(); err = pause(ctx, lookEvery) {
		found, _ := a.opts.Runner.Strangers()
		if len(found) == 0 {
			continue
		}
		a.opts.Logger.Warn("a Puppet that takes no lock runs beside the run", "run", sock.spec.Order.Run, "command", found[0])
		if err := sock.book.write(entry{Beside: found[0]}); err != nil {
			a.opts.Logger.Error("the run's book cannot be written", "run", sock.spec.Order.Run, "error", err)
		}
	}
}

func (a *Agent) setActive(r *activeRun) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.active = r
}

// conclude judges a run that is over and puts its result into the outbox. why
// is set if the agent ended it.
func (a *Agent) conclude(dir string, spec Spec, why error) error {
	out := a.opts.Runner.Judge(dir, spec.Order.Run)
	if out.StartedAt.IsZero() || spec.StartedAt.Before(out.StartedAt) {
		out.StartedAt = spec.StartedAt // the process began before its first word
	}
	if out.EndedAt.Before(out.StartedAt) {
		out.EndedAt = out.StartedAt
	}
	book, err := openBook(dir)
	if err != nil {
		return a.end(dir, failed(spec.Order.Run, tutti.BecauseMachinery, err))
	}
	defer book.close()
	out.Degraded, out.Overlapped = book.degraded(), book.overlapped()
	switch {
	case errors.Is(why, errTimeout):
		out.Outcome, out.Reason = tutti.Failed, tutti.BecauseTimeout
		out.Message = fmt.Sprintf("ended after its timeout of %s, in phase %s", spec.Order.Timeout, out.Phase)
	case errors.Is(why, errCancelled):
		out.Outcome, out.Reason, out.Message = tutti.Interrupted, "", "cancelled in phase "+out.Phase
	case out.Reason == tutti.BecauseCompile && book.unanswered() != "":
		out.Outcome, out.Reason, out.Message = tutti.Waiting, "", "no answer to "+book.unanswered()
	}
	return a.end(dir, out)
}

// end writes the result; from here on the run is in the outbox.
func (a *Agent) end(dir string, result tutti.Result) error {
	if result.StartedAt.IsZero() {
		result.StartedAt = time.Now().UTC()
		result.EndedAt = result.StartedAt
	}
	return writeJSON(filepath.Join(dir, resultFile), result)
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

// recover concludes or follows what earlier agents left.
func (a *Agent) recover(ctx context.Context) error {
	dirs, err := a.runDirs()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if hasFile(dir, resultFile) || hasFile(dir, sentFile) {
			continue
		}
		spec, err := a.opts.Runner.Spec(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // never begun; if it is still wanted it is claimed again
		}
		if err != nil {
			return fmt.Errorf("%s: %w", dir, err)
		}
		if err := a.resume(ctx, dir, spec); err != nil {
			return err
		}
	}
	return nil
}

func hasFile(dir, name string) bool {
	_, err := os.Stat(filepath.Join(dir, name))
	return err == nil
}
