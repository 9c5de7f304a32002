package engine

import (
	"slices"

	"github.com/tutti-project/tutti"
)

// stepKind is how a job carries out the steps of a kind. Each kind is one type in one
// file; its method of kinds is its row in the table.
type stepKind interface {
	// next returns what may begin or end in a step that has not ended.
	next(j *Job, st *Step, v View, b *budget) []tutti.Body
	// busy reports whether something of a step that has not ended is under way, or may
	// begin: then its job goes on.
	busy(j *Job, st *Step) bool
	// runEnded moves a node of the step on, and the step with it, when its run r has
	// ended.
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
// one, and a viewer decides nothing: the step begins nothing, and its job goes on until
// the server says otherwise.
type unknown struct{}

func (unknown) next(*Job, *Step, View, *budget) []tutti.Body { return nil }

func (unknown) busy(*Job, *Step) bool { return true }

// runEnded takes an outcome of a later release for a good one: the server says how the
// step ends.
func (unknown) runEnded(_ *Step, n *StepNode, r *Run) {
	n.State = Done
	if o := r.Outcome(); slices.Contains(tutti.Outcomes, o) && !o.Good() {
		n.State = Failed
	}
}

// alone is what the kinds have in common whose steps act on no node.
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
