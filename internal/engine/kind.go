package engine

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// stepKind is how a job carries out the steps of a kind. Each kind is one type in one
// file. The type kinds has one method for it, which is its row in the table.
type stepKind interface {
	// next returns what may begin or end in a step that has not ended.
	next(j *Job, st *Step, v View, b *budget) []tutti.Body
	// busy reports whether something in a step that has not ended goes on or may
	// begin. Then the job goes on, too.
	busy(j *Job, st *Step) bool
	// runEnded sets the state of a node, and of the step if need be, after the node's run r
	// has ended.
	runEnded(st *Step, n *StepNode, r *Run)
}

// kinds is the table of the kinds of steps.
type kinds struct{}

// kindOf returns how the steps of that kind are carried out.
func kindOf(st *Step) stepKind {
	if kind, ok := tutti.ForStep(kinds{}, st.Kind()); ok {
		return kind
	}
	return unknown{}
}

// unknown is the kind of a step that this release does not know. Only a viewer folds
// such a step, and a viewer decides nothing. The step begins nothing, and its job goes on
// until the server says otherwise.
type unknown struct{}

func (unknown) next(*Job, *Step, View, *budget) []tutti.Body { return nil }

func (unknown) busy(*Job, *Step) bool { return true }

// runEnded takes an outcome that only a later release knows for a good one. The server says
// how the step ends.
func (unknown) runEnded(_ *Step, n *StepNode, r *Run) {
	n.State = Done
	if o := r.Outcome(); slices.Contains(tutti.Outcomes, o) && !o.Good() {
		n.State = Failed
	}
}

// alone is the common part of the kinds whose steps act on no node.
type alone struct{}

func (alone) busy(j *Job, st *Step) bool {
	return st.State == Active || !j.Halted() && j.ready(st, "")
}

func (alone) runEnded(*Step, *StepNode, *Run) {} // it has no runs

// begin begins the step if its turn has come. A noop job passes it over with a message.
func (alone) begin(j *Job, st *Step, noop string) []tutti.Body {
	switch {
	case j.Halted() || !j.ready(st, ""):
		return nil
	case j.Mode == tutti.ModeNoop:
		return []tutti.Body{&tutti.StepFinished{Job: j.ID, Step: st.Name, OK: true, Message: noop}}
	}
	return []tutti.Body{&tutti.StepStarted{Job: j.ID, Step: st.Name}}
}
