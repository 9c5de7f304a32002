package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Preview is a run that shows what a full run would change (tutti.Result.Foretells).
type Preview struct {
	Run tutti.RunID
	// Of is the digest of the code that the run used. For code of a Puppet Server, Of is the environment.
	Of    string
	Seq   uint64 // sequence of the run's event RunWanted
	Found bool   // a resource is out of sync, or the run failed
}

// PreviewOf returns the preview for the result of a run with this order.
func PreviewOf(result tutti.Result, order tutti.Order, wanted uint64) Preview {
	of := string(order.Code)
	if order.Program == tutti.ProgramAgent {
		of = order.Environment
	}
	return Preview{result.Run, of, wanted, result.Outcome == tutti.Failed || result.NoopPending || result.Counts.OutOfSync > 0}
}

// Previews are the latest previews of a node, one for each code and environment. The latest one is first. If a
// node gets an earlier code again, the preview of this code counts again. If the list is too long, the oldest preview without
// changes or failures is dropped.
type Previews [4]Preview

// Add returns the previews with one more preview.
func (p Previews) Add(one Preview) Previews {
	all := []Preview{one}
	for _, other := range p {
		switch {
		case other.Run == "":
		case other.Of != one.Of:
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
