package api

import (
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// AccessQuery asks whether an operator has a verb for a target. Target is a group or a node, or a key for VerbData.
// If Target is empty, the question is about all nodes or any key.
type AccessQuery struct {
	Operator string         `json:"operator"`
	Verb     tutti.Verb     `json:"verb"`
	Target   string         `json:"target,omitempty"`
	Plan     tutti.PlanName `json:"plan,omitempty"`
	Noop     bool           `json:"noop,omitempty"`
}

// Validate checks names.
func (a AccessQuery) Validate() error {
	if err := tutti.ValidateOperator(a.Operator); err != nil {
		return err
	}
	if !slices.Contains(tutti.Verbs, a.Verb) {
		return tutti.Errorf(tutti.CodeInvalid, "unknown verb %q; the verbs are: %s", string(a.Verb), tutti.InList(tutti.Verbs))
	}
	if (a.Plan != "" || a.Noop) && a.Verb != tutti.VerbRun {
		return tutti.Errorf(tutti.CodeInvalid, "only %s can be narrowed by a plan and by noop", tutti.VerbRun)
	}
	if a.Target != "" && !slices.Contains([]tutti.Verb{tutti.VerbRun, tutti.VerbPuppet, tutti.VerbData}, a.Verb) {
		return tutti.Errorf(tutti.CodeInvalid, "%s takes no target, because an entry cannot narrow this verb", a.Verb)
	}
	return nil
}

// What returns the question as text for people.
func (a AccessQuery) What() string {
	words := []string{string(a.Verb)}
	if a.Plan != "" {
		words = append(words, string(a.Plan))
	}
	switch {
	case a.Target != "":
		words = append(words, "on "+a.Target)
	case a.Verb == tutti.VerbRun || a.Verb == tutti.VerbPuppet:
		words = append(words, "on all nodes")
	case a.Verb == tutti.VerbData:
		words = append(words, "of any key")
	}
	if a.Noop {
		words = append(words, "with --noop")
	}
	return strings.Join(words, " ")
}

// AccessAnswer says whether the operator has the verb. AccessAnswer names the entry of the fleet file that gives
// the verb, or the entry that is missing.
type AccessAnswer struct {
	May bool   `json:"may"`
	Why string `json:"why"`
}
