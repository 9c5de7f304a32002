package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Foreigns are the kept runs of one node that no server ordered, in the order in which they were told. Kept are the latest few
// by their start, and the latest of each kind by which a node is judged: by start, by end, and by telling. So a short run does
// not push out a long one, and a wrong time of the node does not push out the run that was told last.
type Foreigns []*tutti.RunForeign

// kinds are the kinds of these runs by which a node is judged (ADR 0011). A run is not forgotten
// for a later good run that does not undo it. Local runs are judged differently and have kinds of their
// own. A local run that only repeats one of our runs does not count.
var kinds = []func(*tutti.RunForeign) bool{
	func(b *tutti.RunForeign) bool { return b.Local == nil && b.Disturbs() },
	func(b *tutti.RunForeign) bool { return b.Local == nil && !b.Noop && !b.Result.Outcome.Good() },
	func(b *tutti.RunForeign) bool { return b.Whole },
	func(b *tutti.RunForeign) bool { return b.Local != nil && b.Disturbs() && !again(b) },
	func(b *tutti.RunForeign) bool { return b.Local != nil && b.Disturbs() && again(b) },
}

func again(b *tutti.RunForeign) bool { return b.Local.As != "" && b.Result.Outcome.Good() }

// Add returns the runs with one more. gone are the runs that are dropped for it, or
// the new run itself if it is not kept. A run that is already there changes nothing.
func (f Foreigns) Add(one *tutti.RunForeign) (kept Foreigns, gone []tutti.RunID) {
	if f.Has(one.Result.Run) {
		return f, nil
	}
	all := append(slices.Clone(f), one)
	told := slices.Clone(all)
	slices.Reverse(told)
	stays := stay(all.ByStart(), tutti.KeptForeign, told)
	for _, b := range all {
		if stays[b] {
			kept = append(kept, b)
		} else {
			gone = append(gone, b.Result.Run)
		}
	}
	return kept, gone
}

// ByStart returns the runs in the order of their start, the latest first.
func (f Foreigns) ByStart() Foreigns {
	return slices.SortedFunc(slices.Values(f), func(a, b *tutti.RunForeign) int {
		return cmp.Or(b.Result.StartedAt.Compare(a.Result.StartedAt), cmp.Compare(b.Result.Run, a.Result.Run))
	})
}

// Stay says which of a node's runs are kept, given the latest first.
func Stay(all []*tutti.RunForeign) []bool {
	stays, out := stay(all, tutti.KeptForeign), make([]bool, len(all))
	for i, b := range all {
		out[i] = stays[b]
	}
	return out
}

// stay marks the first few runs. It also marks the first run of each kind in the given order, in the order of their ends, and
// in other orders.
func stay(all []*tutti.RunForeign, few int, orders ...[]*tutti.RunForeign) map[*tutti.RunForeign]bool {
	stays := map[*tutti.RunForeign]bool{}
	for _, b := range all[:min(few, len(all))] {
		stays[b] = true
	}
	byEnd := slices.SortedStableFunc(slices.Values(all), func(a, b *tutti.RunForeign) int { return b.Result.EndedAt.Compare(a.Result.EndedAt) })
	for _, order := range append(orders, all, byEnd) {
		for _, is := range kinds {
			if i := slices.IndexFunc(order, is); i >= 0 {
				stays[order[i]] = true
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
