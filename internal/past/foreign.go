package past

import (
	"cmp"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// foreignReports has the reports of foreign runs. A report stays as long as the server keeps its run,
// but not longer than the reports of other runs.
type foreignReports struct {
	nodes map[tutti.NodeName]retain.Foreigns
	told  map[tutti.RunID]tutti.Event
	stay  []retain.Ended // in the order of the log
	gone  uint64         // the reports up to this event are older than the limit
}

func (f *foreignReports) add(e tutti.Event, b *tutti.RunForeign) {
	if f.nodes == nil {
		f.nodes, f.told = map[tutti.NodeName]retain.Foreigns{}, map[tutti.RunID]tutti.Event{}
	}
	f.nodes[b.Node], _ = f.nodes[b.Node].Add(b)
	f.told[b.Result.Run] = e
}

// The method `name` adds the digests of the reports that stay.
func (f *foreignReports) name(c *content, keep time.Duration, now time.Time) {
	for _, runs := range f.nodes {
		for _, b := range runs {
			e := f.told[b.Result.Run]
			if keep > 0 && now.Sub(e.At) > keep {
				f.gone = max(f.gone, e.Seq)
				continue
			}
			c.named[b.Result.Report] = true
			f.stay = append(f.stay, retain.Ended{Seq: e.Seq, At: e.At, Run: b.Result.Run, Report: b.Result.Report})
			if c.said != nil && e.Seq > c.said.Foreign {
				c.needed[b.Result.Report] = "the report of foreign run " + string(b.Result.Run)
			}
		}
	}
	slices.SortFunc(f.stay, func(a, b retain.Ended) int { return cmp.Compare(a.Seq, b.Seq) })
}
