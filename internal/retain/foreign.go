package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Foreigns are the runs of one node that Tutti did not start and that are kept, the
// latest by their start first: which these are does not depend on the order in
// which they are told.
type Foreigns []*tutti.RunForeign

// Add returns the runs with one more, at most tutti.KeptForeign. gone is empty, or
// the run that is not kept for it: perhaps the one itself. One that is there
// changes nothing.
func (f Foreigns) Add(one *tutti.RunForeign) (kept Foreigns, gone tutti.RunID) {
	at, _ := slices.BinarySearchFunc(f, one, func(a, b *tutti.RunForeign) int {
		return cmp.Or(b.Result.StartedAt.Compare(a.Result.StartedAt), cmp.Compare(b.Result.Run, a.Result.Run))
	})
	if f.Has(one.Result.Run) {
		return f, ""
	}
	kept = slices.Insert(slices.Clone(f), at, one)
	if len(kept) > tutti.KeptForeign {
		return kept[:tutti.KeptForeign], kept[tutti.KeptForeign].Result.Run
	}
	return kept, ""
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
