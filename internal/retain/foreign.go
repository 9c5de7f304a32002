package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Foreigns are the kept foreign and local runs of one node, in the order of their reports. The latest few runs by start
// are kept. Some kinds of runs matter for the node's state. Of each of these kinds, three runs are kept as well: the
// run that began last, the run that ended last, and the run that was reported last. So a short run does not displace a
// long run. Even if the node's clock is wrong, the run that was reported last stays.
type Foreigns []*tutti.RunForeign

// kinds are the kinds of foreign and local runs that matter for the node's state (ADR 0011). There are several kinds,
// so that a good run does not displace an earlier run whose effects it has not undone. Local runs are judged
// differently, so they have their own kinds. A local run that only repeats a run of Tutti shows nothing new about its
// node, so such runs have one more kind.
var kinds = []func(*tutti.RunForeign) bool{
	func(b *tutti.RunForeign) bool { return b.Local == nil && b.Disturbs() },
	func(b *tutti.RunForeign) bool { return b.Local == nil && !b.Noop && !b.Result.Outcome.Good() },
	func(b *tutti.RunForeign) bool { return b.Whole },
	func(b *tutti.RunForeign) bool { return b.Local != nil && b.Disturbs() && !again(b) },
	func(b *tutti.RunForeign) bool { return b.Local != nil && b.Disturbs() && again(b) },
}

func again(b *tutti.RunForeign) bool { return b.Local.As != "" && b.Result.Outcome.Good() }

// Add returns the runs with one more run. The result `gone` lists the runs that are no longer kept. The new run may
// be one of them. If the run is in the list already, Add changes nothing.
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

// ByStart returns the runs by their start, the latest run first.
func (f Foreigns) ByStart() Foreigns {
	return slices.SortedFunc(slices.Values(f), func(a, b *tutti.RunForeign) int {
		return cmp.Or(b.Result.StartedAt.Compare(a.Result.StartedAt), cmp.Compare(b.Result.Run, a.Result.Run))
	})
}

// Stay returns which runs of a node are kept. The argument has the latest run first.
func Stay(all []*tutti.RunForeign) []bool {
	stays, out := stay(all, tutti.KeptForeign), make([]bool, len(all))
	for i, b := range all {
		out[i] = stays[b]
	}
	return out
}

// The function `stay` selects the first few runs, and the first run of each kind in each order. The orders are the
// order of the list `all`, the order by end, and the lists in `orders`.
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
