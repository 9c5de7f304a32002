package agent

import (
	"context"
	"errors"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/tutti-project/tutti"
)

// OwedFile lists the refreshes that runs have triggered on this node, as long as no run has done them (ADR 0029). When
// a run changes this list, the agent writes OwedFile to disk before it writes the run's result.
const OwedFile = "owed.json"

// Refreshes lists the resources that still need a refresh after a run, and those that no longer
// need one. The lists come from the run's events.
type Refreshes struct {
	Due  []string // resources that the run should have refreshed, but has not refreshed or may not have refreshed
	Over []string // resources that the run has refreshed, or that no longer need a refresh
}

// debts is the content of OwedFile.
type debts struct {
	Owed []tutti.Owed `json:"owed"`
}

// The method `after` returns the debts after a run has ended. The result is the same if the
// method counts a run twice.
func (d debts) after(run tutti.RunID, r Refreshes) debts {
	out := slices.DeleteFunc(slices.Clone(d.Owed), func(o tutti.Owed) bool { return slices.Contains(r.Over, o.Resource) })
	for _, resource := range r.Due {
		if !slices.ContainsFunc(out, func(o tutti.Owed) bool { return o.Resource == resource }) {
			out = append(out, tutti.Owed{Resource: resource, Run: run})
		}
	}
	return debts{out}
}

// readDebts returns the debts of the node with the state directory dir.
func readDebts(dir string) (debts, error) {
	kept, err := readSealed[debts](filepath.Join(dir, OwedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return debts{}, nil
	}
	return kept, tutti.Wrap("", err, "the refreshes that this node owes cannot be read, so the node begins no run; remove the file, and no run repeats them")
}

// Owed returns the refreshes that the node with the state directory dir still owes.
func Owed(dir string) ([]tutti.Owed, error) {
	kept, err := readDebts(dir)
	return kept.Owed, err
}

// ledger keeps the node's debts. Only the claim loop calls its methods.
type ledger struct {
	dir       string // the agent's
	runner    Runner
	unsettled []string    // directories of runs that have ended and are not in OwedFile yet
	late      atomic.Bool // true if `unsettled` is not empty; other goroutines may read this field
}

// postpone notes a run that could not be settled when it ended.
func (l *ledger) postpone(dir string) {
	if !slices.Contains(l.unsettled, dir) {
		l.unsettled = append(l.unsettled, dir)
	}
	l.late.Store(true)
}

// settle updates the node's debts after a run in mode apply. When settle returns without an error, the debts are on
// disk.
func (l *ledger) settle(dir string, run tutti.RunID) (debts, error) {
	before, err := readDebts(l.dir)
	if err != nil {
		return before, err
	}
	refreshes, err := l.runner.Refreshes(dir)
	if err != nil {
		return before, tutti.Wrap("", err, "the refreshes that run %s owes cannot be read, so the node begins no run", run)
	}
	after := before.after(run, refreshes)
	if slices.Equal(after.Owed, before.Owed) {
		return after, nil
	}
	if err := writeSealed(filepath.Join(l.dir, OwedFile), after); err != nil {
		return after, tutti.Wrap("", err, "store the refreshes that run %s owes", run)
	}
	return after, nil
}

// settleLate settles the runs that could not be settled when they ended.
func (l *ledger) settleLate() error {
	for len(l.unsettled) > 0 {
		if _, err := l.settle(l.unsettled[0], tutti.RunID(filepath.Base(l.unsettled[0]))); err != nil {
			return err
		}
		l.unsettled = l.unsettled[1:]
	}
	l.late.Store(false)
	return nil
}

// The method `owes` returns the resources that the next run must refresh. Only a run in mode apply
// refreshes them.
func (l *ledger) owes(mode tutti.Mode) ([]string, error) {
	if err := l.settleLate(); err != nil || mode != tutti.ModeApply {
		return nil, err
	}
	kept, err := readDebts(l.dir)
	var out []string
	size := 0
	for _, o := range kept.Owed {
		if size += len(o.Resource); size > maxRepeated { // a later run repeats the refreshes that are left out here
			break
		}
		out = append(out, o.Resource)
	}
	return out, err
}

// maxRepeated bounds the total length of the names of resources that one run must refresh, in
// bytes.
const maxRepeated = 4 << 20

// endUnknown ends a run whose marker cannot be read. The run's events can still be read.
func endUnknown(ctx context.Context, a *Agent, dir string, out tutti.Result) error {
	if _, err := a.debts.settle(dir, out.Run); err != nil {
		a.debts.postpone(dir)
		return tell(ctx, a, dir, unrecorded(out, err), err)
	}
	return a.end(ctx, dir, out)
}

// endUnwatched ends a run whose process may have begun. The agent did not see the end of this
// process.
func endUnwatched(ctx context.Context, a *Agent, dir string, spec Spec, out tutti.Result) error {
	if spec.Order.Mode != tutti.ModeApply { // only a run in mode apply does owed refreshes or owes new ones
		return a.end(ctx, dir, out)
	}
	return endUnknown(ctx, a, dir, out)
}

// The method `told` returns the debts that go into a result: at most MaxFailures debts, with
// shortened names.
func (d debts) told() []tutti.Owed {
	out := slices.Clone(d.Owed[:min(len(d.Owed), tutti.MaxFailures)])
	for i := range out {
		if name := out[i].Resource; len(name) > maxOwedName {
			out[i].Resource = strings.ToValidUTF8(name[:maxOwedName], "") + "…"
		}
	}
	return out
}

// maxOwedName bounds the name of a resource in a result, in bytes. OwedFile contains the whole
// name.
const maxOwedName = 1 << 10
