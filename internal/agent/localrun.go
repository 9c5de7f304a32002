package agent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/killpoint"
	"github.com/tutti-project/tutti/wire"
)

// LocalFile is in the directory of a run that the agent began without an order. The agent writes
// LocalFile before the marker (ADR 0023). A run without an order gets only answers that the agent
// already knows, and publishes nothing.
const LocalFile = "local.json"

var errAsksNobody = tutti.Errorf(tutti.CodeUnavailable, "a local run does not ask the server: it gets only the last known answers")

// localAsk is a person's request for a local run.
type localAsk struct {
	mode tutti.Mode
	said chan localSaid // a channel with room for one answer
}

type localSaid struct {
	run tutti.RunID
	err error
}

// safetyRuns makes a safety run if one is due. The method returns the time after which
// the caller should call it again.
func (a *Agent) safetyRuns(ctx context.Context) time.Duration {
	at, none := a.knows().Safety(a.opts.Node)
	if none != "" {
		return claimEvery
	}
	if wait := time.Until(at); wait > 0 {
		return wait
	}
	if err := a.safetyRun(ctx); err != nil && ctx.Err() == nil {
		a.opts.Logger.Error("this node makes no safety run now", "error", err)
		return claimEvery
	}
	return 0
}

// safetyRun makes a safety run.
func (a *Agent) safetyRun(ctx context.Context) error {
	order, err := a.localOrder(tutti.ModeApply)
	if err == nil {
		err = a.learn(func(s *Alone) { s.Ran = time.Now() }) // note the run first, so that a restarted agent does not make it again
	}
	if err != nil {
		return err
	}
	a.opts.Logger.Warn("the server is away: this node makes a safety run by itself", "run", order.Run)
	return a.runLocal(ctx, order, tutti.Local{Safety: true, Away: true, Code: order.Code})
}

// personsRun makes the local run that a person on the node asked for.
func (a *Agent) personsRun(ctx context.Context, ask localAsk) error {
	order, err := a.localOrder(ask.mode)
	ask.said <- localSaid{order.Run, err}
	if err != nil {
		return nil //nolint:nilerr // the person got the error
	}
	a.opts.Logger.Info("a person on this node has begun a run", "run", order.Run, "mode", order.Mode)
	return a.runLocal(ctx, order, tutti.Local{Away: time.Since(a.knows().Reached) > awayAfter, Code: order.Code})
}

// localOrder returns the order of a local run. The method returns CodeNotFound if the agent does not
// know what to run. The method returns CodeConflict if another run or an exclusive job has the node.
func (a *Agent) localOrder(mode tutti.Mode) (tutti.Order, error) {
	applied := a.knows().Applied
	if applied == nil {
		return tutti.Order{}, tutti.Errorf(tutti.CodeNotFound, "no full run has passed its gate on this node yet, so the code for a local run is unknown")
	}
	if why := a.knows().observed(); why != "" {
		return tutti.Order{}, tutti.Errorf(tutti.CodeConflict, "this node is observed, so Tutti starts nothing here: %s; run Puppet itself", why)
	}
	if job := a.heldBy(); job != "" {
		return tutti.Order{}, tutti.Errorf(tutti.CodeConflict, "the node is held by exclusive job %s until the job or its lease ends", job)
	}
	if err := a.opts.Space(); err != nil {
		return tutti.Order{}, err
	}
	order := *applied
	order.Run, order.Mode = tutti.RunID(uuid.Must(uuid.NewV7()).String()), mode
	order.Job, order.Step, order.Attempt = "", "", 1
	order.FreshFacts, order.Proof, order.Exclusive, order.Debug = true, false, false, false
	return order, order.Validate()
}

// runLocal executes a run without an order. The run's directory always shows how the
// run ended.
func (a *Agent) runLocal(ctx context.Context, order tutti.Order, how tutti.Local) error {
	dir := a.runDir(order.Run)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	if err := writeSealed(filepath.Join(dir, LocalFile), how); err != nil {
		return err
	}
	killpoint.Here("agent.local-noted")
	held, release := a.hold(ctx, order.Run)
	defer release()
	err := a.begin(held, dir, wire.Claimed{Order: &order})
	if err != nil && ctx.Err() == nil && !hasFile(dir, resultFile) {
		if _, unbegun := a.opts.Runner.Spec(dir); errors.Is(unbegun, fs.ErrNotExist) {
			err = a.end(held, dir, failed(order.Run, tutti.BecauseMachinery, err))
		}
	}
	if err != nil {
		return err
	}
	return a.hearLocals()
}

// hearLocals puts ended local runs into the outbox of runs that the server did not order.
func (a *Agent) hearLocals() error {
	err := hearEach(a)
	switch late := a.unheard.heard(err); {
	case late && err != nil:
		ring(a.beat)
	case late:
		ring(a.lookAgain)
	}
	return err
}

func hearEach(a *Agent) error {
	dirs, err := a.runDirs()
	if err != nil {
		return err
	}
	for _, dir := range dirs {
		if !hasFile(dir, LocalFile) || !hasFile(dir, resultFile) || hasFile(dir, sentFile) {
			continue
		}
		if err := a.hearLocal(dir); err != nil {
			return fmt.Errorf("report local run %s: %w", filepath.Base(dir), err)
		}
	}
	return nil
}

func (a *Agent) hearLocal(dir string) error {
	run := tutti.RunID(filepath.Base(dir))
	how, err := readSealed[tutti.Local](filepath.Join(dir, LocalFile))
	if err != nil {
		how = tutti.Local{} // report the run even if the agent does not know why it began
	}
	told := tutti.Foreign{Result: readResult(dir, run), Local: &how}
	spec, err := a.opts.Runner.Spec(dir)
	if err == nil {
		told.Environment, told.Noop = spec.Order.Environment, spec.Order.Mode != tutti.ModeApply
		if how.Unpublished = unpublished(dir); len(how.Unpublished) == 0 {
			how.As = a.repeats(dir, spec)
		}
	}
	report, err := readReport(dir, maxHeardReport)
	if err == nil && len(report) > 0 {
		told.Result.Report = tutti.DigestOf(report)
	}
	told.Puppet = a.puppetOf(dir)
	told.Result.Stopped, told.Result.Log, told.Result.Record = false, "", ""
	if err := a.hear(told, report); err != nil {
		return err
	}
	killpoint.Here("agent.local-heard")
	if err := writeSealed(filepath.Join(dir, sentFile), map[string]string{}); err != nil {
		return err
	}
	ring(a.lookAgain)
	return nil
}

// maxHeardReport bounds the report of a local run, in bytes, because the agent reads the outbox as
// a whole.
const maxHeardReport = 16 << 20

// puppetOf returns the version of the Puppet that executed a run. The version is empty if
// Puppet never reported it.
func (a *Agent) puppetOf(dir string) string {
	book, err := openBook(dir)
	if err != nil {
		return ""
	}
	defer book.close()
	return book.greeted().Puppet
}

// The function `unpublished` returns the first keys that a local run would have published or
// withdrawn.
func unpublished(dir string) []string {
	book, err := openBook(dir)
	if err != nil {
		return nil // no keys are needed here: without the book, the method `repeats` says that the run repeats no other run
	}
	defer book.close()
	keys := book.unpublished()
	return keys[:min(len(keys), tutti.MaxFailures)]
}

// The method `repeats` compares a local run with the last full run that passed its gate. If both
// runs had the same code, environment, program, answers and catalog, the method returns the id of
// that full run. In all other cases the method returns an empty string. Other facts lead to another
// catalog, so the method need not compare facts. If a Puppet Server made the catalog, the method
// returns an empty string, because the agent does not know the catalog's sources.
func (a *Agent) repeats(dir string, spec Spec) tutti.RunID {
	known := a.knows()
	if known.Applied == nil || spec.Order.Program == tutti.ProgramAgent || spec.Order.Code != known.Applied.Code ||
		spec.Order.Environment != known.Applied.Environment || spec.Order.Program != known.Applied.Program {
		return ""
	}
	book, err := openBook(dir)
	if err != nil {
		return ""
	}
	defer book.close()
	record, err := book.record(spec)
	if err != nil || basisDigest(record) != known.Basis {
		return ""
	}
	return known.Applied.Run
}

// basisDigest identifies what a run applied. The digest covers the catalog and all answers. The
// order of the questions and their number do not matter.
func basisDigest(r tutti.Record) tutti.Digest {
	lines := make([]string, len(r.Reads))
	for i, read := range r.Reads {
		lines[i] = fmt.Sprintf("%s %t %s\n", queryKey(read.Query), read.Found, read.Digest)
	}
	slices.Sort(lines)
	catalog := fmt.Sprintln(r.Inputs.Catalog, r.Inputs.Sources, r.Inputs.Lib)
	return tutti.DigestOf([]byte(catalog + strings.Join(slices.Compact(lines), "")))
}

// Ended reads the directory of a run. The return value `how` describes how the run began, and is nil
// if the server ordered the run. The value `result` is nil if the run is still going on. The value
// `told` is true if the server knows the run, or if the outbox of foreign and local runs will report
// it.
func Ended(dir string) (how *tutti.Local, result *tutti.Result, told bool) {
	if l, err := readSealed[tutti.Local](filepath.Join(dir, LocalFile)); err == nil {
		how = &l
	}
	if hasFile(dir, resultFile) {
		r := readResult(dir, tutti.RunID(filepath.Base(dir)))
		result = &r
	}
	return how, result, hasFile(dir, sentFile)
}

// HeldBy returns the exclusive job that holds the node with the state directory dir. HeldBy
// returns an empty string if no job holds the node.
func HeldBy(dir string) tutti.JobID {
	note, err := readSealed[leaseNote](filepath.Join(dir, LeaseFile))
	if err != nil {
		return "" // the method `trouble` reports a damaged note
	}
	return note.Job
}
