package engine

import (
	"time"

	"github.com/tutti-project/tutti"
)

// Facts are the last report of a node about its facts.
type Facts struct {
	*tutti.NodeFacts
	Seq uint64 // sequence of the event
	At  time.Time
}

// Facts returns the last report of a node about its facts. Facts returns nil if there is
// no report.
func (s *State) Facts(node tutti.NodeName) *Facts { return s.facts[node] }

// Since reports whether the facts have changed since the run. This means that the node reported
// f after the run had passed its gate, and that f differs from the facts of the run's compile.
// If the run's facts are unknown, Since returns false.
func (f *Facts) Since(r *Run) bool {
	return f != nil && r != nil && r.Compiled != nil && r.Compiled.Facts != "" && f.Seq > r.GatedSeq && f.Facts != r.Compiled.Facts
}

// ToTell reports whether the server still needs a report of the node's facts after a run that has ended.
// The server needs this report if the run has changed something, or was wanted only because of facts.
func (f *Facts) ToTell(r *Run) bool {
	return r.Full() && r.Result != nil && (r.Result.Counts.Changed > 0 || r.ByFacts) && (f == nil || f.Seq < r.EndedSeq)
}

// factsRow is the longest time between consecutive runs that are wanted only because of
// facts.
const factsRow = time.Hour

// The method `count` notes how many consecutive runs up to r were wanted only because of facts. The method also notes
// how many of the latest of these runs changed nothing.
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

// The bounds limit consecutive runs that are wanted only because of facts.
const (
	maxVain = 2 // runs that change nothing
	maxRow  = 6
)

// KeepChanging reports whether facts have changed too often, so that changed facts alone no longer cause
// runs.
func (f *Facts) KeepChanging() bool { return f != nil && (f.Vain >= maxVain || f.Row >= maxRow) }

// Harmless reports whether facts keep changing without effect. This means that the latest runs that were wanted
// because of facts changed nothing.
func (f *Facts) Harmless() bool { return f != nil && f.Vain >= maxVain }

// Tell returns the event to append when a node reports its facts. Tell returns nil if there is nothing new. The
// reported facts belong to the run in.Run. If a later run of the node has collected facts, Tell also returns
// nil.
func (s *State) Tell(node tutti.NodeName, in tutti.FactsSeen, now time.Time) *tutti.NodeFacts {
	r, f := s.Runs[in.Run], s.facts[node]
	last, own := s.Last(node), Own(s, node) // a compile for a diff reports no facts
	switch {
	case r == nil || r.Node != node || r.Foreign != nil || own == nil || s.Active[node] != "":
		return nil
	case r != own && (own.Compiled != nil || own.Served != nil || r.EndedSeq > own.EndedSeq): // the last claimed run has newer facts
		return nil
	}
	body := &tutti.NodeFacts{Node: node, FactsSeen: in}
	same := f == nil && r.Compiled != nil && r.Compiled.Facts == in.Facts || f != nil && f.Facts == in.Facts
	if f != nil && f.Run == in.Run { // the run was counted before
		body.Vain, body.Row = f.Vain, f.Row
	} else {
		if f != nil && s.Runs[f.Run] != nil && s.Runs[f.Run].Seq > r.Seq { // facts after a later run are already known
			return nil
		}
		f.count(body, r, now)
		same = same && !f.ToTell(r) && (f == nil || f.Vain == body.Vain)
	}
	told := &Facts{NodeFacts: body, Seq: max(own.EndedSeq, r.EndedSeq) + 1}
	if same && told.Since(last.Passed) == f.Since(last.Passed) {
		return nil
	}
	return body
}
