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
// facts than it compiled with. What is not known is no other.
func (f *Facts) Since(r *Run) bool {
	return f != nil && r != nil && r.Compiled != nil && r.Compiled.Facts != "" && f.Seq > r.GatedSeq && f.Facts != r.Compiled.Facts
}

// ToTell reports whether it is of interest which facts a node has after a run that has ended, and the
// node has not told yet: the run has changed something, or was wanted by facts alone.
func (f *Facts) ToTell(r *Run) bool {
	return r.Full() && r.Result != nil && (r.Result.Counts.Changed > 0 || r.ByFacts) && (f == nil || f.Seq < r.EndedSeq)
}

// vain returns how many runs in a row came to nothing that were wanted by facts alone, the last of
// which is r: it has changed nothing, and the facts are other ones again.
func (f *Facts) vain(r *Run, in tutti.FactsSeen) int {
	other := len(in.Changed) > 0
	if r.Compiled != nil && r.Compiled.Facts != "" {
		other = r.Compiled.Facts != in.Facts
	}
	switch {
	case !r.ByFacts, !other, r.Passed() && r.Result != nil && r.Result.Counts.Changed > 0:
		return 0
	case f == nil:
		return 1
	}
	return f.Vain + 1
}

// Tell returns what is to be appended when a node says which facts it has, nil: nothing new.
// Only what was collected after the node's last run counts.
func (s *State) Tell(node tutti.NodeName, in tutti.FactsSeen) *tutti.NodeFacts {
	r, f := s.Runs[in.Run], s.facts[node]
	last := s.Last(node).Claimed
	switch {
	case r == nil || r.Node != node || r.Foreign != nil || last == nil || s.Active[node] != "":
		return nil
	case r != last && (last.Compiled != nil || last.Served != nil || r.EndedSeq > last.EndedSeq): // it has facts of its own
		return nil
	}
	body := &tutti.NodeFacts{Node: node, FactsSeen: in}
	switch {
	case f != nil && f.Run == in.Run: // the run is counted
		body.Vain = f.Vain
		if f.Facts == in.Facts {
			return nil
		}
	default:
		body.Vain = f.vain(r, in)
		same := f == nil && r.Compiled != nil && r.Compiled.Facts == in.Facts || f != nil && f.Facts == in.Facts && f.Vain == body.Vain
		if same && !f.ToTell(r) {
			return nil
		}
	}
	return body
}
