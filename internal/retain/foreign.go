package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Foreigns are the runs of one node that Tutti did not start and that are kept, the
// latest by their start first: the latest few, and the latest of each kind by which a
// node is judged. Which these are does not depend on the order in which they are told.
type Foreigns []*tutti.RunForeign

// kinds are those by which a node is judged (ADR 0011): what a later run does not
// undo, by being good, is not forgotten for it.
var kinds = []func(*tutti.RunForeign) bool{
	func(b *tutti.RunForeign) bool { return b.Disturbs() },
	func(b *tutti.RunForeign) bool { return !b.Noop && !b.Result.Outcome.Good() },
	func(b *tutti.RunForeign) bool { return b.Whole },
}

// Add returns the runs with one more. gone are those that are not kept any more for
// it, or the one itself. One that is there changes nothing.
func (f Foreigns) Add(one *tutti.RunForeign) (kept Foreigns, gone []tutti.RunID) {
	at, _ := slices.BinarySearchFunc(f, one, func(a, b *tutti.RunForeign) int {
		return cmp.Or(b.Result.StartedAt.Compare(a.Result.StartedAt), cmp.Compare(b.Result.Run, a.Result.Run))
	})
	if f.Has(one.Result.Run) {
		return f, nil
	}
	all := slices.Insert(slices.Clone(f), at, one)
	stays := Stay(all)
	for i, b := range all {
		if stays[i] {
			kept = append(kept, b)
		} else {
			gone = append(gone, b.Result.Run)
		}
	}
	return kept, gone
}

// Stay says which of a node's runs are kept, given the latest first.
func Stay(all []*tutti.RunForeign) []bool {
	stays, had := make([]bool, len(all)), make([]bool, len(kinds))
	for i, b := range all {
		stays[i] = i < tutti.KeptForeign
		for k, is := range kinds {
			if is(b) && !had[k] {
				stays[i], had[k] = true, true
			}
		}
	}
	return stays
}

// Has reports whether a run is kept.
func (f Foreigns) Has(id tutti.RunID) bool {
	return slices.ContainsFunc(f, func(b *tutti.RunForeign) bool { return b.Result.Run == id })
}

func noteForeign(l *Ledger, e tutti.Event) {
	b := e.Body.(*tutti.RunForeign)
	l.foreign[b.Node], _ = l.foreign[b.Node].Add(b)
}

func needsForeign(l *Ledger, e tutti.Event) bool {
	b := e.Body.(*tutti.RunForeign)
	return l.foreign[b.Node].Has(b.Result.Run)
}
