package tutti

import (
	"cmp"
	"strconv"
	"time"
)

// Epoch is one life of a fleet's log. Each restore of a server begins the next one, so
// that orders of the lost end of the log can be told from the orders of now. Two servers with
// one number and different random parts were made from one log, and know nothing of each other.
type Epoch struct {
	Number uint64 `json:"number"` // 1 at first
	Random string `json:"random"` // empty: of a log of release 0.2.0 or before
}

// MaxEpoch bounds the number of an epoch, which is a time in milliseconds: there is always a next one that JSON of any
// language can hold.
const MaxEpoch = 1 << 53

// EpochStep bounds by how much the number of an epoch is above the time and above what was seen before: a hundred years.
// Without it an attacker who has posed as the server once, with a backup, would leave no higher number.
const EpochStep = 100 * 365 * 24 * 60 * 60 * 1000

// Plausible refuses, as CodeRefused, an epoch that no honest server begins after the one that was seen.
func (e Epoch) Plausible(seen Epoch, now time.Time) error {
	most := max(seen.Number, uint64(max(0, now.UnixMilli()))) + EpochStep
	if e.Number <= most {
		return nil
	}
	return Errorf(CodeRefused, "the server says that its epoch is %s, more than a hundred years above the time and all that was seen: it is not believed", e)
}

// Position is how far a server is: its epoch, and the last event that it has acknowledged, with
// its link, which stands for all before it. Nodes and operators keep the last that they were
// told.
type Position struct {
	Epoch Epoch  `json:"epoch"`
	Seq   uint64 `json:"seq"`
	Link  Digest `json:"link,omitempty"` // see Link
}

// Behind returns an error, CodeDamaged, if a server at this position cannot be the one
// that was at seen before, or has gone back since. at is the link that its log has at the seen
// event, empty if it is not known any more. A seen position of no epoch says nothing.
func (p Position) Behind(seen Position, at Digest) error {
	var what string
	mend := "tutti server new-epoch"
	switch {
	case seen.Epoch.Number == 0, p.Epoch.Number > seen.Epoch.Number:
		return nil
	case p.Epoch.Number < seen.Epoch.Number:
		what = "it has gone back before its last restore"
		mend += " --above " + strconv.FormatUint(seen.Epoch.Number, 10)
	case p.Epoch.Random != seen.Epoch.Random:
		what = "there are two servers of this epoch, each of them restored from one backup or copied"
	case p.Seq < seen.Seq:
		what = "its log has gone back"
	case at != "" && seen.Link != "" && at != seen.Link:
		what = "its log has gone back, and on from there to other events"
	default:
		return nil
	}
	return Errorf(CodeDamaged, "this server is at event %d of epoch %s, and was seen at event %d of epoch %s: %s; if it is the right one, stop it and begin its next epoch: %s",
		p.Seq, p.Epoch, seen.Seq, seen.Epoch, what, mend)
}

// String is for people: the number, and what tells it from another one of that number.
func (e Epoch) String() string {
	if e.Random == "" {
		return strconv.FormatUint(e.Number, 10)
	}
	return strconv.FormatUint(e.Number, 10) + " (" + e.Random[:min(len(e.Random), 8)] + ")"
}

// Fence orders the orders that a node was ever given: by the epoch in which a run was
// wanted, then by the sequence of its run.wanted. It needs no clock. The zero Fence is before all.
type Fence struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Compare is negative if f is before other, positive if it is after it.
func (f Fence) Compare(other Fence) int {
	return cmp.Or(cmp.Compare(f.Epoch, other.Epoch), cmp.Compare(f.Seq, other.Seq))
}
