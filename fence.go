package tutti

import (
	"cmp"
	"strconv"
	"time"
)

// Epoch is one life of a fleet's log. Each restore of a server begins a new epoch. With the epoch, the server and its
// nodes distinguish present orders from orders that a restore has removed from the log. If the epochs of two servers
// have the same number but different random parts, both servers were restored from one log. Neither server has the
// later events of the other.
type Epoch struct {
	Number uint64 `json:"number"` // the first epoch has the number 1
	Random string `json:"random"` // Random is empty for a log of release 0.2.0 or older.
}

// MaxEpoch bounds the number of an epoch, which is a time in milliseconds. Below this bound there is always a higher
// number, and the JSON of every language can represent this number.
const MaxEpoch = 1 << 53

// EpochStep bounds the number of a new epoch. The number may be at most a hundred years above the present time or the
// last seen number, whichever is larger. Without EpochStep, an attacker who once posed as the server could use up all
// higher numbers.
const EpochStep = 100 * 365 * 24 * 60 * 60 * 1000

// Plausible returns an error with CodeRefused if no honest server would begin this epoch after the position `seen`.
func (e Epoch) Plausible(seen Epoch, now time.Time) error {
	most := max(seen.Number, uint64(max(0, now.UnixMilli()))) + EpochStep
	if e.Number <= most {
		return nil
	}
	return Errorf(CodeRefused, "the server says that its epoch is %s; the node refuses this epoch, which is more than a hundred years above both the present time and every epoch seen before", e)
}

// Position is a server's position: its epoch, and the last event that it has acknowledged, with the
// link of that event. The link covers all earlier events. Nodes and operators store the last
// position that the server has sent them.
type Position struct {
	Epoch Epoch  `json:"epoch"`
	Seq   uint64 `json:"seq"`
	Link  Digest `json:"link,omitempty"` // see Link
}

// Behind returns an error with CodeDamaged if this server cannot have been at the position `seen`, or was set back
// after it had been at this position. The argument `at` is the link of the seen event in this server's log. The
// argument is empty if the log no longer has that event. If the seen position has no epoch, Behind returns no error.
func (p Position) Behind(seen Position, at Digest) error {
	var what string
	mend := "tutti server new-epoch"
	switch {
	case seen.Epoch.Number == 0, p.Epoch.Number > seen.Epoch.Number:
		return nil
	case p.Epoch.Number < seen.Epoch.Number:
		what = "its epoch is older than the epoch seen before"
		mend += " --above " + strconv.FormatUint(seen.Epoch.Number, 10)
	case p.Epoch.Random != seen.Epoch.Random:
		what = "there are two servers of this epoch, which were restored from the same backup or copied"
	case p.Seq < seen.Seq:
		what = "its log has gone back"
	case at != "" && seen.Link != "" && at != seen.Link:
		what = "its log has gone back, and has other events since then"
	default:
		return nil
	}
	return Errorf(CodeDamaged, "this server is at event %d of epoch %s, and was seen at event %d of epoch %s: %s; if this is the right server, stop it and begin its next epoch: %s",
		p.Seq, p.Epoch, seen.Seq, seen.Epoch, what, mend)
}

// String returns, for people, the epoch's number and the beginning of its random part. The random
// part distinguishes two epochs that have the same number.
func (e Epoch) String() string {
	if e.Random == "" {
		return strconv.FormatUint(e.Number, 10)
	}
	return strconv.FormatUint(e.Number, 10) + " (" + e.Random[:min(len(e.Random), 8)] + ")"
}

// Fence is the position of an order among all orders that a node ever gets. The position depends
// first on the epoch in which the run was wanted, then on the sequence of the run.wanted event. To
// compare two fences, nobody needs a clock. The zero Fence comes before all others.
type Fence struct {
	Epoch uint64 `json:"epoch"`
	Seq   uint64 `json:"seq"`
}

// Compare is negative if f is before other, and positive if f is after other.
func (f Fence) Compare(other Fence) int {
	return cmp.Or(cmp.Compare(f.Epoch, other.Epoch), cmp.Compare(f.Seq, other.Seq))
}
