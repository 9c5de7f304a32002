package engine

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Summary shows a job in numbers. CriticalPath is the longest chain of run times along the plan's
// edges, as agents measured them. If the plan has a converge step, CriticalPath is the time that the
// runs of Job.Path took, without the time until a node claimed an order.
type Summary struct {
	Job          tutti.JobID
	Outcome      tutti.Verdict
	Runs         int // runs that passed their gate
	Compiles     int // runs that were stopped at their gate
	Failed       int // runs that failed, were interrupted or got lost, even if the plan accepts this
	Wall         time.Duration
	CriticalPath time.Duration
}

// Summary returns the numbers of the job up to now.
func (j *Job) Summary(now time.Time) Summary {
	out := j.Tally()
	end := j.EndedAt
	if end.IsZero() {
		end = now
	}
	out.Wall = end.Sub(j.StartedAt)
	if slices.ContainsFunc(j.Steps, func(st *Step) bool { return st.Converge != nil }) {
		for _, p := range j.Path() {
			switch p.Phase {
			case PathCompile, PathHeld, PathApply, PathStop:
				out.CriticalPath += p.Took()
			case PathWanted, PathDecide, PathWait: // no Puppet process is the reason
			}
		}
		return out
	}
	paths := newPaths(j)
	for _, st := range j.Steps {
		out.CriticalPath = max(out.CriticalPath, paths.step(st))
	}
	return out
}

// Tally returns the Summary without times. It costs much less.
func (j *Job) Tally() Summary {
	out := Summary{Job: j.ID, Outcome: j.Verdict}
	for _, st := range j.Steps {
		for _, n := range st.Nodes {
			for _, r := range n.Runs {
				if r.Left && st.ActsOn() == tutti.NodesFound {
					continue // the step does not need the node, and the step's verdict reports that the node left
				}
				out.count(r)
			}
		}
	}
	return out
}

func (s *Summary) count(r *Run) {
	switch {
	case r.Passed():
		s.Runs++
	case r.Gate == tutti.GateStop:
		s.Compiles++
	}
	switch r.Outcome() {
	case tutti.Failed, tutti.Interrupted, tutti.Lost:
		s.Failed++
	case tutti.Unchanged, tutti.Changed, tutti.Waiting, tutti.Skipped: // counted above
	}
}

// The type `paths` computes the longest chain that ends in a step, or in a node of a step. Each chain is computed
// only once.
type paths struct {
	job   *Job
	steps map[*Step]time.Duration
	nodes map[*StepNode]time.Duration
}

func newPaths(j *Job) *paths {
	return &paths{job: j, steps: map[*Step]time.Duration{}, nodes: map[*StepNode]time.Duration{}}
}

func (p *paths) step(st *Step) time.Duration {
	if d, ok := p.steps[st]; ok {
		return d
	}
	longest := p.before(st, nil)
	for _, n := range st.Nodes {
		longest = max(longest, p.node(st, n))
	}
	p.steps[st] = longest
	return longest
}

func (p *paths) node(st *Step, n *StepNode) time.Duration {
	if d, ok := p.nodes[n]; ok {
		return d
	}
	total := p.before(st, n)
	for _, r := range n.Runs {
		if r.Result != nil {
			total += r.Result.Duration()
		}
	}
	p.nodes[n] = total
	return total
}

// The method `before` returns the longest chain for which the step, or the node in the step, waited.
func (p *paths) before(st *Step, n *StepNode) time.Duration {
	var longest time.Duration
	for _, name := range st.After {
		earlier := p.job.byName[name]
		if st.PerNode && n != nil && earlier.ActsOn() == tutti.NodesListed {
			if same := earlier.byNode[n.Node]; same != nil {
				longest = max(longest, p.node(earlier, same))
			}
			continue
		}
		longest = max(longest, p.step(earlier))
	}
	return longest
}
