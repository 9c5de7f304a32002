package retain

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// Preview is a run that foretells what a full run would find (tutti.Result.Foretells).
type Preview struct {
	Run  tutti.RunID
	Code tutti.Digest
	Seq  uint64 // of its RunWanted
}

// Previews are the latest such run of a node for each of the last two codes, the latest first: what was found with a code
// counts again when that code comes back.
type Previews [2]Preview

// Add returns them with one more.
func (p Previews) Add(one Preview) Previews {
	all := []Preview{one}
	for _, other := range p {
		switch {
		case other.Run == "":
		case other.Code != one.Code:
			all = append(all, other)
		case other.Seq > one.Seq: // the result of one came late
			all[0] = other
		}
	}
	slices.SortFunc(all, func(a, b Preview) int { return cmp.Compare(b.Seq, a.Seq) })
	var out Previews
	copy(out[:], all)
	return out
}

// Has reports whether a run is one of them.
func (p Previews) Has(id tutti.RunID) bool {
	return slices.ContainsFunc(p[:], func(one Preview) bool { return one.Run == id })
}
