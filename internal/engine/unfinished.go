package engine

import "github.com/tutti-project/tutti"

// Unfinished returns the unfinished jobs that an actor has started, the oldest first.
func Unfinished(s *State, by string) []*Job {
	var out []*Job
	for _, id := range s.Order {
		if j := s.Jobs[id]; j.By == by && !j.Ended() {
			out = append(out, j)
		}
	}
	return out
}

// JobsBegun returns the jobs with at least one run that a node has claimed.
func JobsBegun(s *State) map[tutti.JobID]bool {
	out := map[tutti.JobID]bool{}
	for _, r := range s.Runs {
		if r.ClaimedSeq > 0 {
			out[r.Job] = true
		}
	}
	return out
}
