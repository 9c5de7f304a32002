package cli

import (
	"fmt"

	"github.com/tutti-project/tutti"
)

// stepView is how people see the steps of a kind. Each kind is one type in one
// file. The type stepViews has one method for it, which is its row in the table.
type stepView interface {
	// waits is what the step itself waits for, empty if it waits for its nodes.
	waits(s tutti.Step) string
	// ended is the text for a step that ended well without a message.
	ended() string
	// gate says what an event at the gate of one of the step's runs means; empty: the event
	// is of no interest.
	gate(b tutti.Body) string
}

// stepViews is the table of the kinds of steps.
type stepViews struct{}

// viewOf returns how people see a step.
func viewOf(s tutti.Step) stepView {
	if view, known := tutti.ForStep(stepViews{}, s.Kind()); known {
		return view
	}
	return nodesView{}
}

// kindNote names the kind of a step that only a later release knows. For known kinds it is empty.
func kindNote(s tutti.Step) string {
	if _, known := tutti.ForStep(stepViews{}, s.Kind()); known {
		return ""
	}
	if s.Kind() == "" {
		return "of no kind that is known"
	}
	return fmt.Sprintf("kind %q, not known to this release", tutti.Plain(string(s.Kind()), maxLine))
}

// stepBegan says that a step began. The step may have no runs.
func stepBegan(s tutti.Step) string {
	if waits := viewOf(s).waits(s); waits != "" {
		return fmt.Sprintf("%s: waiting for %s", s.Name, waits)
	}
	if note := kindNote(s); note != "" {
		return fmt.Sprintf("%s: begins (%s)", s.Name, note)
	}
	return fmt.Sprintf("%s: begins", s.Name)
}

// stepEnded says how a step ended. The step may have no runs.
func stepEnded(s tutti.Step, b *tutti.StepFinished) string {
	switch {
	case b.OK && b.Message != "":
		return fmt.Sprintf("%s: %s", b.Step, b.Message)
	case b.OK:
		return fmt.Sprintf("%s: %s", b.Step, viewOf(s).ended())
	}
	return fmt.Sprintf("%s failed: %s", b.Step, b.Message)
}

// nodesView is for steps whose nodes' runs say everything.
type nodesView struct{}

func (nodesView) waits(tutti.Step) string { return "" }

func (nodesView) ended() string { return "done" }

func (nodesView) gate(tutti.Body) string { return "" }
