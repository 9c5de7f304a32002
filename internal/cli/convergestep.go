package cli

import "github.com/tutti-project/tutti"

// convergeView shows steps whose nodes may be held at their gates.
type convergeView struct{ nodesView }

// Converge implements tutti.StepTable.
func (stepViews) Converge() stepView { return convergeView{} }

func (convergeView) gate(b tutti.Body) string {
	switch b := b.(type) {
	case *tutti.RunCompiled:
		return "has compiled"
	case *tutti.RunGated:
		if b.Verdict == tutti.GateGo {
			return "applies"
		}
	}
	return ""
}
