package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/retain"
)

// Keep limits how many jobs and runs the state keeps.
type Keep struct {
	Jobs int
	Runs int // runs of the kept jobs
}

// maxRetired bounds how many jobs one decision retires, so that the events fit into one
// append.
const maxRetired = 1000

// Retire returns the jobs that should be retired now, in order, at most 1,000. Retire
// chooses the oldest finished job of the operator who has the most jobs or runs. Retire
// repeats this until the remaining jobs and runs are within the bounds. One operator can
// therefore not push out the past of other operators. Unfinished jobs and the latest job
// always stay.
func (s *State) Retire(keep Keep) []tutti.JobID {
	jobs, runs := len(s.Order), s.runs
	if jobs <= keep.Jobs && runs <= keep.Runs {
		return nil
	}
	var all []*share // the operator with the oldest job comes first
	for i, id := range s.Order {
		j := s.Jobs[id]
		at := slices.IndexFunc(all, func(o *share) bool { return o.by == j.By })
		if at < 0 {
			at, all = len(all), append(all, &share{by: j.By})
		}
		all[at].jobs, all[at].runs = all[at].jobs+1, all[at].runs+j.runs
		if j.Ended() && i < len(s.Order)-1 {
			all[at].ended = append(all[at].ended, j)
		}
	}
	var out []tutti.JobID
	for len(out) < maxRetired && (jobs > keep.Jobs || runs > keep.Runs) {
		var most *share
		for _, of := range all {
			if len(of.ended) > 0 && (most == nil || most.less(of, jobs > keep.Jobs)) {
				most = of
			}
		}
		if most == nil {
			break
		}
		j := most.ended[0]
		most.ended, most.jobs, most.runs = most.ended[1:], most.jobs-1, most.runs-j.runs
		jobs, runs = jobs-1, runs-j.runs
		out = append(out, j.ID)
	}
	return out
}

// The type `share` contains one operator's part of the past.
type share struct {
	by         string
	jobs, runs int
	ended      []*Job // jobs that may be retired, the oldest first
}

// The method `less` reports whether the share s is smaller than the share o. It compares the numbers of jobs, or the
// numbers of runs if `jobs` is false. If the numbers are equal, the result is true if o's oldest finished job is
// older.
func (s *share) less(o *share, jobs bool) bool {
	has, others := s.runs, o.runs
	if jobs {
		has, others = s.jobs, o.jobs
	}
	return others > has || others == has && o.ended[0].Seq < s.ended[0].Seq
}

// The method `retire` forgets a job and its runs, except the runs that determine the standing of a node.
func (s *State) retire(id tutti.JobID) []tutti.RunID {
	j := s.Jobs[id]
	if j == nil {
		return nil
	}
	delete(s.Jobs, id)
	s.Order = slices.DeleteFunc(s.Order, func(o tutti.JobID) bool { return o == id })
	s.open = slices.DeleteFunc(s.open, func(o *Job) bool { return o == j })
	s.runs -= j.runs
	var gone []tutti.RunID
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			for _, r := range n.Runs {
				gone = append(gone, s.letGo(r.Run)...)
			}
		}
	}
	return gone
}

// letGo forgets a run whose job is gone. The method keeps the run if the run is still
// going on, or if the run determines the standing of its node.
func (s *State) letGo(id tutti.RunID) []tutti.RunID {
	r := s.Runs[id]
	if r == nil || s.Jobs[r.Job] != nil || s.last[r.Node].has(id) || slices.Contains(s.partial[r.Node], id) || s.Active[r.Node] == id {
		return nil
	}
	delete(s.Runs, id)
	return []tutti.RunID{id}
}

// The method `claim` notes that a run is the last run of its node. The method forgets earlier runs that were kept
// only as the last runs of the node.
func (s *State) claim(e tutti.Event, b *tutti.RunClaimed) []tutti.RunID {
	r := s.Runs[b.Run]
	if r == nil {
		return nil
	}
	if r.ClaimedAt.IsZero() {
		r.ClaimedAt, r.ClaimedSeq = e.At, e.Seq
	}
	r.Fenced = r.Fenced || b.Fenced // an upgraded agent claims the run again
	return s.judgeBy(r, func(l *last) {
		l.claimed = r.Run
		if !r.Diff {
			l.own = r.Run
		}
		if r.Full() {
			l.applied = r.Run
		}
	})
}

// The method `pass` is called when a full run has passed its gate or proved its node good. The method stores the run
// in the field `passed` of the node's last runs.
func (s *State) pass(r *Run) []tutti.RunID {
	if r == nil || !r.Full() {
		return nil
	}
	return s.judgeBy(r, func(l *last) { l.passed, l.shown = r.Run, "" })
}

// The method `report` is called when a run has sent its result. If the result has a report, the method notes the
// run as the latest run with a report. It does not do this if a run that was wanted later has already sent a
// report.
func (s *State) report(r *Run) []tutti.RunID {
	later := func(than tutti.RunID) bool { return s.Runs[than] == nil || s.Runs[than].Seq <= r.Seq }
	return s.judgeBy(r, func(l *last) {
		if r.Result.Tells() && later(l.reported) {
			l.reported = r.Run
		}
		if r.Result.Tells() && r.Full() && later(l.left) {
			l.left = r.Run
		}
		if r.Previews() && r.Result.Foretells(r.Mode) {
			l.previews = l.previews.Add(retain.PreviewOf(*r.Result, r.Order, r.Seq))
		}
	})
}

// applyPart is called when a run passes its gate. It notes a run with tags, at most retain.MaxPartial runs for each
// node. After a full run, it forgets the noted runs.
func (s *State) applyPart(r *Run) (gone []tutti.RunID) {
	before := s.partial[r.Node]
	switch {
	case r.Full():
		delete(s.partial, r.Node)
		for _, id := range before {
			gone = append(gone, s.letGo(id)...)
		}
	case r.Mode == tutti.ModeApply && len(before) < retain.MaxPartial && !slices.Contains(before, r.Run):
		s.partial[r.Node] = append(before[:len(before):len(before)], r.Run)
	}
	return gone
}

// changedAnyway notes a noop run that has changed its node. Agents of release 0.3 and earlier let Puppet change resources
// with `noop => false`. Such a run counts like a run with tags.
func changedAnyway(s *State, r *Run) {
	before := s.partial[r.Node]
	if r.Mode != tutti.ModeApply && r.Result.Counts.Changed > 0 && len(before) < retain.MaxPartial {
		s.partial[r.Node] = append(before[:len(before):len(before)], r.Run)
	}
}

func (s *State) judgeBy(r *Run, change func(*last)) (gone []tutti.RunID) {
	before := s.last[r.Node]
	now := before
	if change(&now); now == before {
		return nil
	}
	s.last[r.Node] = now
	for _, id := range before.ids() {
		gone = append(gone, s.letGo(id)...)
	}
	return gone
}

// NextJob returns the id of the next job of a plan. The numbers of all jobs are
// consecutive, and numbers of retired jobs are not used again.
func (s *State) NextJob(plan tutti.PlanName) tutti.JobID {
	return tutti.JobID(fmt.Sprintf("%s-%d", plan, s.started+1))
}

// Retired reports whether a job with that id may have existed but was retired.
func (s *State) Retired(id tutti.JobID) bool {
	n := number(id)
	return s.Jobs[id] == nil && n > 0 && n <= s.started
}

// The function `number` returns the number at the end of a job's id. The function returns 0 if
// there is no number.
func number(id tutti.JobID) int {
	n, err := strconv.Atoi(string(id[strings.LastIndex(string(id), "-")+1:]))
	if err != nil {
		return 0
	}
	return n
}
