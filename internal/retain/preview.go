package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Preview is a run that shows what a full run would change (tutti.Result.Foretells).
type Preview struct {
	Run   tutti.RunID
	Code  tutti.Digest
	Seq   uint64 // sequence of the run's event RunWanted
	Found bool   // a resource is out of sync, or the run failed
}

// PreviewOf returns the preview for the result of a run.
func PreviewOf(result tutti.Result, code tutti.Digest, wanted uint64) Preview {
	return Preview{result.Run, code, wanted, result.Outcome == tutti.Failed || result.NoopPending || result.Counts.OutOfSync > 0}
}

// Previews are the latest previews of a node, one for each code. The latest one is first. If a node gets an
// earlier code again, the preview of this code counts again. If the list is too long, the oldest preview without
// changes or failures is dropped.
type Previews [4]Preview

// Add returns the previews with one more preview.
func (p Previews) Add(one Preview) Previews {
	all := []Preview{one}
	for _, other := range p {
		switch {
		case other.Run == "":
		case other.Code != one.Code:
			all = append(all, other)
		case other.Seq > one.Seq: // the new result arrived late
			all[0] = other
		}
	}
	slices.SortFunc(all, func(a, b Preview) int { return cmp.Compare(b.Seq, a.Seq) })
	var out Previews
	if len(all) > len(out) {
		goes := len(all) - 1
		for i, other := range slices.Backward(all) {
			if !other.Found {
				goes = i
				break
			}
		}
		all = slices.Delete(all, goes, goes+1)
	}
	copy(out[:], all)
	return out
}

// Has reports whether a run is one of the previews.
func (p Previews) Has(id tutti.RunID) bool {
	return slices.ContainsFunc(p[:], func(one Preview) bool { return one.Run == id })
}
