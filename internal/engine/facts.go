package engine

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Facts are what a node has told last of its facts.
type Facts struct {
	*tutti.NodeFacts
	Seq uint64 // of the event
	At  time.Time
}

// Facts returns what a node has told last of its facts, nil: nothing.
func (s *State) Facts(node tutti.NodeName) *Facts { return s.facts[node] }

// Since reports whether that was told after the run had passed its gate, and of other
// facts than it compiled with. Unknown facts do not count as other ones.
func (f *Facts) Since(r *Run) bool {
	return f != nil && r != nil && r.Compiled != nil && r.Compiled.Facts != "" && f.Seq > r.GatedSeq && f.Facts != r.Compiled.Facts
}

// ToTell reports whether it is of interest which facts a node has after a run that has ended, and the
// node has not told yet: the run has changed something, or was wanted by facts alone.
func (f *Facts) ToTell(r *Run) bool {
	return r.Full() && r.Result != nil && (r.Result.Counts.Changed > 0 || r.ByFacts) && (f == nil || f.Seq < r.EndedSeq)
}

// factsRow is within which time runs that are wanted by facts alone are a row.
const factsRow = time.Hour

// count notes how many runs in a row were wanted by facts alone, the last of which is r, and how many of
// these came to nothing.
func (f *Facts) count(body *tutti.NodeFacts, r *Run, now time.Time) {
	if !r.ByFacts {
		return
	}
	if f != nil && now.Sub(f.At) < factsRow {
		body.Row, body.Vain = f.Row, f.Vain
	}
	body.Row++
	if body.Vain++; r.Passed() && r.Result != nil && r.Result.Outcome.Good() && r.Result.Counts.Changed > 0 {
		body.Vain = 0
	}
}

// Bounds of runs in a row that are wanted by facts alone.
const (
	maxVain = 2 // that come to nothing
	maxRow  = 6
)

// KeepChanging reports whether facts have changed too often for more runs by them alone.
func (f *Facts) KeepChanging() bool { return f != nil && (f.Vain >= maxVain || f.Row >= maxRow) }

// Harmless reports whether they keep changing, and that made no difference.
func (f *Facts) Harmless() bool { return f != nil && f.Vain >= maxVain }

// Tell returns what is to be appended when a node says which facts it has, nil: nothing new.
// Only what was collected after the node's last run that collected any counts.
func (s *State) Tell(node tutti.NodeName, in tutti.FactsSeen, now time.Time) *tutti.NodeFacts {
	r, f := s.Runs[in.Run], s.facts[node]
	last := s.Last(node)
	switch {
	case r == nil || r.Node != node || r.Foreign != nil || last.Claimed == nil || s.Active[node] != "":
		return nil
	case r != last.Claimed && (last.Claimed.Compiled != nil || last.Claimed.Served != nil || r.EndedSeq > last.Claimed.EndedSeq): // it has facts of its own
		return nil
	}
	body := &tutti.NodeFacts{Node: node, FactsSeen: in}
	same := f == nil && r.Compiled != nil && r.Compiled.Facts == in.Facts || f != nil && f.Facts == in.Facts
	if f != nil && f.Run == in.Run { // the run is counted
		body.Vain, body.Row = f.Vain, f.Row
	} else {
		if f != nil && s.Runs[f.Run] != nil && s.Runs[f.Run].Seq > r.Seq { // more is known
			return nil
		}
		f.count(body, r, now)
		same = same && !f.ToTell(r) && (f == nil || f.Vain == body.Vain)
	}
	told := &Facts{NodeFacts: body, Seq: max(last.Claimed.EndedSeq, r.EndedSeq) + 1}
	if same && told.Since(last.Passed) == f.Since(last.Passed) {
		return nil
	}
	return body
}
