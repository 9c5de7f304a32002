package cli

import (
	"fmt"

	"github.com/tutti-project/tutti"
)

// stepView defines how people see the steps of one kind. Each kind of step has its own type in
// its own file. The type stepViews is a table: for each kind it has one method, which returns
// the kind's type.
type stepView interface {
	// The method `waits` returns a text about the event or the time that the step waits for.
	// The text is empty if the step waits only for its nodes.
	waits(s tutti.Step) string
	// The method `ended` returns the text for a step that ended well and has no message.
	ended() string
	// The method `gate` returns a text about an event at the gate of a run. The text is empty
	// if people need not see the event.
	gate(b tutti.Body) string
}

// stepViews is the table of the kinds of steps.
type stepViews struct{}

// viewOf returns the view of a step.
func viewOf(s tutti.Step) stepView {
	if view, known := tutti.ForStep(stepViews{}, s.Kind()); known {
		return view
	}
	return nodesView{}
}

// kindNote returns the name of a step's kind if only a later release knows this kind. For known
// kinds, kindNote returns an empty text.
func kindNote(s tutti.Step) string {
	if _, known := tutti.ForStep(stepViews{}, s.Kind()); known {
		return ""
	}
	if s.Kind() == "" {
		return "of unknown kind"
	}
	return fmt.Sprintf("kind %q, not known to this release", tutti.Plain(string(s.Kind()), maxLine))
}

// stepBegan returns the line for the beginning of a step. stepBegan must also work for a step
// without runs.
func stepBegan(s tutti.Step) string {
	if waits := viewOf(s).waits(s); waits != "" {
		return fmt.Sprintf("%s: waiting for %s", s.Name, waits)
	}
	if note := kindNote(s); note != "" {
		return fmt.Sprintf("%s: begins (%s)", s.Name, note)
	}
	return fmt.Sprintf("%s: begins", s.Name)
}

// stepEnded returns the line for the end of a step. stepEnded must also work for a step without
// runs.
func stepEnded(s tutti.Step, b *tutti.StepFinished) string {
	switch {
	case b.OK && b.Message != "":
		return fmt.Sprintf("%s: %s", b.Step, b.Message)
	case b.OK:
		return fmt.Sprintf("%s: %s", b.Step, viewOf(s).ended())
	}
	return fmt.Sprintf("%s failed: %s", b.Step, b.Message)
}

// nodesView shows steps that need no extra text, because the runs of their nodes show
// everything.
type nodesView struct{}

func (nodesView) waits(tutti.Step) string { return "" }

func (nodesView) ended() string { return "done" }

func (nodesView) gate(tutti.Body) string { return "" }
