package engine

import (
	"cmp"
	"slices"

	"github.com/tutti-project/tutti"
)

// The type `running` implements run steps. A run step runs Puppet on the nodes of its target. A node compiles again
// when its gate stops it. The step ends when all its nodes have ended.
type running struct{}

// Run implements tutti.StepTable.
func (kinds) Run() stepKind { return running{} }

func (running) next(j *Job, st *Step, v View, b *budget) []tutti.Body {
	if j.Halted() {
		return j.skips(st)
	}
	if refused := withoutCode(j, st); len(refused) > 0 {
		return refused
	}
	if v.Hold {
		return nil
	}
	if !st.PerNode && !j.ready(st, "") {
		return nil // without `per: node`, all nodes of the step become ready together
	}
	var out []tutti.Body
	inFlight := st.count(Active)
	for _, n := range st.Nodes {
		if n.State != Pending || st.Run.Limit > 0 && inFlight >= st.Run.Limit || !b.left() {
			continue
		}
		if b.busy(j, n.Node) || st.PerNode && !j.ready(st, n.Node) || n.resting(v) {
			continue
		}
		b.take(n.Node)
		inFlight++
		var usual Usual
		if v.Usual != nil {
			usual = v.Usual(n.Node)
		}
		out = append(out, &tutti.RunWanted{Order: j.Want(st, n.Node, len(n.Runs)+1, usual)})
	}
	return out
}

// withoutCode ends the runs of nodes whose environment has changed since the job began, if the job has no code of the new
// environment. No node gets such an order.
func withoutCode(j *Job, st *Step) []tutti.Body {
	var out []tutti.Body
	for _, n := range st.Nodes {
		if r := n.Last(); n.State == Active && r.ClaimedAt.IsZero() && r.Program != tutti.ProgramAgent && r.Code == "" && r.Environment != j.Env {
			out = append(out, &tutti.RunFinished{Result: tutti.Result{
				Run: r.Run, Outcome: tutti.Failed, Reason: tutti.BecauseRefused,
				Message: "environment " + r.Environment + " had no code when the job began: start the job again",
			}})
		}
	}
	return out
}

func (running) busy(j *Job, st *Step) bool {
	return slices.ContainsFunc(st.Nodes, func(n *StepNode) bool {
		return n.State == Active || n.State == Pending && !j.Halted() && j.ready(st, n.Node)
	})
}

func (running) runEnded(st *Step, n *StepNode, r *Run) {
	n.State = judge(st.Run, n, r)
	if slices.ContainsFunc(st.Nodes, func(n *StepNode) bool { return n.State != Done && n.State != Failed }) {
		return
	}
	st.EndedAt, st.State = r.EndedAt, Done
	if st.count(Failed) > 0 {
		st.State = Failed
	}
}

// maxAttempts bounds how often a node compiles again in one step. A node compiles again
// if one of the answers to its questions changes before the gate.
const maxAttempts = 6

func judge(spec *tutti.RunStep, n *StepNode, r *Run) StepState {
	result := tutti.Result{Outcome: r.Outcome()}
	if r.Lost == "" {
		result = *r.Result
	}
	switch {
	case n.anew(r):
		return Pending
	case !result.Stopped && spec.Accepts(result):
		return Done
	}
	return Failed
}

// CodeOf returns the code of an environment in the job. For an empty environment, CodeOf returns the name and the code of
// the fleet's environment. The code is empty if the environment had no code when the job began.
func (j *Job) CodeOf(environment string) (string, tutti.Digest) {
	if environment == "" || environment == j.Env {
		return j.Env, j.Code
	}
	return environment, j.Codes[environment]
}

// Want returns the order for a node in a step. The step's options override what is usual for the node. The order's run
// has no id yet. The order has no code if the job has none of the node's environment.
func (j *Job) Want(st *Step, node tutti.NodeName, attempt int, usual Usual) tutti.Order {
	o := tutti.Order{Node: node, Job: j.ID, Step: st.Name, Mode: j.Mode, Timeout: st.Timeout, Attempt: attempt}
	var options tutti.RunOptions
	if st.Kind() == tutti.StepRun {
		options = st.Run.RunOptions
	}
	environment := cmp.Or(options.Environment, usual.Environment)
	if cmp.Or(options.Program, usual.Program) == tutti.ProgramAgent {
		o.Program, o.Environment = tutti.ProgramAgent, environment
	} else {
		o.Environment, o.Code = j.CodeOf(environment)
	}
	if options.Noop && o.Mode == tutti.ModeApply {
		o.Mode = tutti.ModeNoop
	}
	o.Exclusive, o.Diff = j.Leases != nil, j.Diff != nil
	o.Tags, o.SkipTags, o.Debug = options.Tags, options.SkipTags, options.Debug
	o.FreshFacts = options.FreshFacts || !options.FactsAhead && j.byPerson(st) && !j.ranOn(node)
	return o
}

// byPerson reports whether a person wants the runs of a step. If a person wants the runs, the job's
// first run on a node must see what this person has just changed on the node.
func (j *Job) byPerson(st *Step) bool {
	return st.Kind() != tutti.StepConverge || !st.Converge.Reaction
}

// ranOn reports whether a job has had a run on a node.
func (j *Job) ranOn(node tutti.NodeName) bool {
	return slices.ContainsFunc(j.Steps, func(st *Step) bool {
		n := st.byNode[node]
		return n != nil && len(n.Runs) > 0
	})
}

// The method `skips` ends those runs of a halted job that no node has claimed. If the method did not end these runs,
// they would begin when their nodes connect again. The method also stops the runs that are held at their gates.
func (j *Job) skips(st *Step) []tutti.Body {
	var out []tutti.Body
	for _, n := range st.Nodes {
		switch r := n.Last(); {
		case n.State != Active:
		case r.Held():
			out = append(out, &tutti.RunGated{Run: r.Run, Verdict: tutti.GateStop, Reason: j.WhyHalted()})
		case r.ClaimedAt.IsZero():
			out = append(out, &tutti.RunFinished{Result: tutti.Result{
				Run: r.Run, Outcome: tutti.Skipped, Message: "before the node began: " + j.WhyHalted(),
			}})
		}
	}
	return out
}
