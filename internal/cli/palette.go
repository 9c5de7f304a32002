package cli

import "github.com/tutti-project/tutti/internal/engine"

// A palette that is true adds colours to texts. A palette that is false leaves texts
// unchanged.
type palette bool

func (p palette) color(code, s string) string {
	if !p || s == "" {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p palette) red(s string) string   { return p.color("31", s) }
func (p palette) plain(s string) string { return s }
func (p palette) bold(s string) string  { return p.color("1", s) }
func (p palette) dim(s string) string   { return p.color("2", s) }

// The method `mark` returns one character for the state of a step.
func (p palette) mark(s engine.StepState) string {
	switch s {
	case engine.Done:
		return p.color("32", "✔")
	case engine.Failed:
		return p.color("31", "✘")
	case engine.Active:
		return p.color("33", "●")
	default:
		return p.color("2", "○")
	}
}
