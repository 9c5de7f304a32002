package engine

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// stepKind implements the steps of one kind. Each kind is one type in one file. The type
// `kinds` is a table: each of its methods is the row of one kind.
type stepKind interface {
	// The method `next` returns the events that begin or end something in an unfinished step.
	next(j *Job, st *Step, v View, b *budget) []tutti.Body
	// The method `busy` reports whether something in an unfinished step is running or may begin.
	// While the result is true, the job is not over.
	busy(j *Job, st *Step) bool
	// runEnded sets the state of a node after the node's run r has ended. If necessary,
	// runEnded also sets the state of the step.
	runEnded(st *Step, n *StepNode, r *Run)
}

// kinds is the table of the kinds of steps.
type kinds struct{}

// kindOf returns the implementation of the step's kind.
func kindOf(st *Step) stepKind {
	if kind, ok := tutti.ForStep(kinds{}, st.Kind()); ok {
		return kind
	}
	return unknown{}
}

// The type `unknown` implements steps of a kind that this release does not know. Only viewers fold such a step, and
// viewers decide nothing. The step begins nothing, and its job goes on until the server reports its end.
type unknown struct{}

func (unknown) next(*Job, *Step, View, *budget) []tutti.Body { return nil }

func (unknown) busy(*Job, *Step) bool { return true }

// runEnded treats an unknown outcome as good, because the outcome is from a later release. The server reports how the
// step ends.
func (unknown) runEnded(_ *Step, n *StepNode, r *Run) {
	n.State = Done
	if o := r.Outcome(); slices.Contains(tutti.Outcomes, o) && !o.Good() {
		n.State = Failed
	}
}

// The type `alone` is the common part of kinds whose steps act on no node.
type alone struct{}

func (alone) busy(j *Job, st *Step) bool {
	return st.State == Active || !j.Halted() && j.ready(st, "")
}

func (alone) runEnded(*Step, *StepNode, *Run) {} // the step has no runs

// The method `begin` returns the event that begins the step, if all steps before it are done. A noop job skips the
// step with a message.
func (alone) begin(j *Job, st *Step, noop string) []tutti.Body {
	switch {
	case j.Halted() || !j.ready(st, ""):
		return nil
	case j.Mode == tutti.ModeNoop:
		return []tutti.Body{&tutti.StepFinished{Job: j.ID, Step: st.Name, OK: true, Message: noop}}
	}
	return []tutti.Body{&tutti.StepStarted{Job: j.ID, Step: st.Name}}
}
