package engine

import (
	"slices"
	"time"

	"github.com/tutti-project/tutti"
)

// Apply folds one event into the state and returns the runs that the state dropped because
// of the event. Apply ignores events that do not concern jobs. Apply also ignores events
// about unknown jobs or runs, because the beginning of the log may have been dropped.
func (s *State) Apply(e tutti.Event) (gone []tutti.RunID) {
	gone = s.fold(e)
	s.followPhases(e.At)
	return gone
}

func (s *State) fold(e tutti.Event) (gone []tutti.RunID) {
	switch b := e.Body.(type) {
	case *tutti.EpochBegun:
		s.Epoch = b.Epoch
	case *tutti.NodeSetBack:
		s.setBack[b.Node] = &SetBack{NodeSetBack: b, Seq: e.Seq, At: e.At}
	case *tutti.NodeFacts:
		s.facts[b.Node] = &Facts{NodeFacts: b, Seq: e.Seq, At: e.At}
	case *tutti.JobStarted:
		s.startJob(e, b)
	case *tutti.JobCancelled:
		if j := s.Jobs[b.Job]; j != nil {
			j.Cancelled, j.Message = true, b.Reason
		}
	case *tutti.JobFinished:
		if j := s.Jobs[b.Job]; j != nil {
			j.Verdict, j.Message, j.EndedAt = b.Verdict, b.Message, e.At
			s.open = slices.DeleteFunc(s.open, func(o *Job) bool { return o == j })
			if j.Leases != nil {
				j.Leases.after = nil // without this line, each job would keep all earlier jobs in memory
			}
			s.exclusive = slices.DeleteFunc(s.exclusive, func(o *Job) bool { return o == j })
		}
	case *tutti.LeaseChanged:
		s.applyLease(b)
	case *tutti.StepStarted:
		if st := s.step(b.Job, b.Step); st != nil {
			st.State, st.StartedAt = Active, e.At
		}
	case *tutti.StepFinished:
		if st := s.step(b.Job, b.Step); st != nil {
			st.end(e.At, b.OK, b.Message)
		}
	case *tutti.RunClaimed:
		return s.claim(e, b)
	case *tutti.RunProved:
		if r := s.Runs[b.Run]; r != nil {
			r.Proved, r.Rests, r.RestsAt = true, b.Rests, b.Clock
			return s.pass(r)
		}
	case *tutti.RunGated:
		return s.gate(e, b)
	case *tutti.RunFinished:
		return s.finishRun(e, b)
	case *tutti.RunCompiled:
		return s.compile(e, b)
	case *tutti.RunWanted, *tutti.RunAsked, *tutti.RunRefused, *tutti.RunLost:
		s.applyRun(e)
	case *tutti.ConvergeFinished:
		if st := s.step(b.Job, b.Step); st != nil {
			st.Verdict = b.Verdict
			st.end(e.At, b.Verdict.Good(), b.Message)
		}
	case *tutti.RunForeign:
		return s.tellForeign(e, b)
	case *tutti.JobRetired:
		return s.retire(b.Job)
	case *tutti.NodeRemoved:
		before, parts := s.last[b.Node], s.partial[b.Node]
		delete(s.last, b.Node)
		delete(s.partial, b.Node)
		delete(s.setBack, b.Node)
		delete(s.facts, b.Node)
		gone := s.forgetForeign(b.Node)
		for _, id := range append(before.ids(), parts...) {
			gone = append(gone, s.letGo(id)...)
		}
		return gone
	}
	return nil
}

// The method `end` ends a step. If the step was skipped or had nothing to do, its beginning is the same as its end.
func (st *Step) end(at time.Time, ok bool, message string) {
	st.Message, st.EndedAt, st.State = message, at, Failed
	if ok {
		st.State = Done
	}
	if st.StartedAt.IsZero() {
		st.StartedAt = at
	}
}

func (s *State) startJob(e tutti.Event, b *tutti.JobStarted) {
	j := &Job{
		ID: b.Job, Seq: e.Seq, Plan: b.Plan, Mode: b.Mode, Env: b.Env, Code: b.Code, Codes: b.Codes, Commits: b.Commits, By: e.By, Cause: b.Cause,
		Diff: b.Diff, StartedAt: e.At, byName: map[tutti.StepName]*Step{},
	}
	for _, spec := range b.Plan.Steps {
		st := &Step{Step: spec, State: Pending, byNode: map[tutti.NodeName]*StepNode{}}
		for _, node := range b.Targets[spec.Name] {
			n := &StepNode{Node: node, State: Pending}
			st.Nodes = append(st.Nodes, n)
			st.byNode[node] = n
		}
		j.Steps = append(j.Steps, st)
		j.byName[spec.Name] = st
	}
	s.Jobs[b.Job] = j
	s.Order = append(s.Order, b.Job)
	s.open = append(s.open, j)
	if b.Plan.Exclusive != nil {
		j.Leases = newLeases(j, s.exclusive)
		s.exclusive = append(s.exclusive, j)
	}
	s.started = max(s.started+1, number(b.Job))
}

func (s *State) applyRun(e tutti.Event) {
	switch b := e.Body.(type) {
	case *tutti.RunWanted:
		s.wantRun(e, b)
	case *tutti.RunAsked:
		if r := s.Runs[b.Run]; r != nil {
			r.Asked = b.Reads
			if b.Served != nil {
				r.Served = b.Served
				r.Records++
			}
		}
	case *tutti.RunRefused:
		if r := s.Runs[b.Run]; r != nil {
			r.Wants = b.Wants
		}
	case *tutti.RunLost:
		if r := s.Runs[b.Run]; r != nil && !r.Ended() {
			r.Lost, r.Left = b.Reason, b.Left
			s.endRun(e, r)
		}
	}
}

// The method `compile` notes what a run has compiled. The catalog of a proof is used until another proof compiles, or
// until a full run passes its gate or proves the node good.
func (s *State) compile(e tutti.Event, b *tutti.RunCompiled) []tutti.RunID {
	r := s.Runs[b.Run]
	if r == nil {
		return nil
	}
	compiled := b.CatalogReport
	r.CompiledSeq = e.Seq
	r.CompiledAt, r.Values, r.Set, r.Compiled, r.Asked, r.Groups = e.At, b.Values, b.Set, &compiled, b.Reads, b.Groups
	if !r.Full() || !r.Proof {
		return nil
	}
	return s.judgeBy(r, func(l *last) { l.shown = r.Run })
}

// finishRun notes the result of a run. Only the first result is kept.
func (s *State) finishRun(e tutti.Event, b *tutti.RunFinished) []tutti.RunID {
	r := s.Runs[b.Result.Run]
	if r == nil || r.Result != nil {
		return nil
	}
	result := b.Result
	r.Result, r.Told = &result, e.By == tutti.ActorNode(r.Node)
	r.ToldSeq, r.ToldAt = e.Seq, e.At
	s.endRun(e, r)
	r.Restored = r.Restored || r.Fence.Epoch != s.Epoch.Number // also if the run was given up before the restore
	changedAnyway(s, r)
	return s.report(r)
}

// The method `gate` notes the gate's decision. Old releases have no event run.compiled, so their logs contain the
// values in run.gated.
func (s *State) gate(e tutti.Event, b *tutti.RunGated) []tutti.RunID {
	r := s.Runs[b.Run]
	if r == nil {
		return nil
	}
	r.Gate, r.GateWhy, r.GatedAt, r.GatedSeq, r.GatedAfter = b.Verdict, b.Reason, e.At, e.Seq, b.After
	if r.CompiledAt.IsZero() {
		r.Values = b.Values
	}
	if b.Verdict != tutti.GateGo {
		return nil
	}
	return append(s.applyPart(r), s.pass(r)...)
}

func (s *State) wantRun(e tutti.Event, b *tutti.RunWanted) {
	o := b.Order
	r := &Run{Order: o, ByFacts: b.ByFacts, Changed: b.Changed, WantedAfter: b.After, Seq: e.Seq, Fence: tutti.Fence{Epoch: s.Epoch.Number, Seq: e.Seq}, WantedAt: e.At}
	s.Runs[o.Run] = r
	s.Active[o.Node] = o.Run
	if j := s.Jobs[o.Job]; j != nil {
		j.runs++
		s.runs++
	}
	st := s.step(o.Job, o.Step)
	if st == nil {
		return
	}
	n := st.byNode[o.Node]
	if n == nil && st.ActsOn() == tutti.NodesFound { // from now on, the node takes part in the step
		n = &StepNode{Node: o.Node}
		st.byNode[o.Node], st.Nodes = n, append(st.Nodes, n)
	}
	if n == nil {
		return
	}
	n.State, n.Runs = Active, append(n.Runs, r)
	if st.State == Pending {
		st.State, st.StartedAt = Active, e.At
	}
}

// endRun frees the node and sets the node's state in the step. A result that comes after
// RunLost is kept, but does not change the node's state.
func (s *State) endRun(e tutti.Event, r *Run) {
	if r.Ended() {
		return
	}
	r.EndedAt, r.EndedSeq = e.At, e.Seq
	r.Restored = r.Fence.Epoch != s.Epoch.Number
	if s.Active[r.Node] == r.Run {
		delete(s.Active, r.Node)
	}
	st := s.step(r.Job, r.Step)
	if st == nil || st.byNode[r.Node] == nil {
		return
	}
	kindOf(st).runEnded(st, st.byNode[r.Node], r)
}

func (s *State) step(job tutti.JobID, name tutti.StepName) *Step {
	if j := s.Jobs[job]; j != nil {
		return j.byName[name]
	}
	return nil
}
