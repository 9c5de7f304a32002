package cli

import (
	"fmt"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// linesOf returns the lines of text for an event. linesOf returns no lines if people need not see the event.
func linesOf(p *progress, e tutti.Event) []string {
	if line := eventViewOf(e.Body).line; line != nil {
		return line(p, e)
	}
	return nil
}

func startedAct(b *tutti.JobStarted) string {
	return fmt.Sprintf("started job %s (plan %s, mode %s)", b.Job, b.Plan.Name, b.Mode)
}

func startedLine(_ *progress, _ tutti.Event, b *tutti.JobStarted) string {
	text := fmt.Sprintf("job %s: plan %s, %s, code %s", b.Job, b.Plan.Name, b.Mode, codeName(fmt.Sprintf("%.12s", usedCode(b).Hex())))
	if b.Cause != "" {
		text += ", because: " + b.Cause
	}
	return text
}

// usedCode returns the code of the only environment that the steps of a job name, or the code of the fleet's environment.
func usedCode(b *tutti.JobStarted) tutti.Digest {
	code := b.Code
	for i, st := range b.Plan.Steps {
		if st.Kind() != tutti.StepRun || st.Run.Environment == "" || i > 0 && st.Run.Environment != b.Plan.Steps[0].Run.Environment {
			return b.Code
		}
		if other := b.Codes[st.Run.Environment]; other != "" {
			code = other
		}
	}
	return code
}

func cancelledLine(_ *progress, e tutti.Event, _ *tutti.JobCancelled) string {
	return "cancelled by " + e.By + ": current runs finish, no more runs begin"
}

func stepStartedLine(p *progress, _ tutti.Event, b *tutti.StepStarted) string {
	return stepBegan(p.step(b.Step))
}

func stepFinishedLine(p *progress, _ tutti.Event, b *tutti.StepFinished) string {
	return stepEnded(p.step(b.Step), b)
}

func leaseLine(p *progress, e tutti.Event) []string {
	return describeLease(p.job(), e.Body.(*tutti.LeaseChanged))
}

func claimedLine(p *progress, e tutti.Event) []string {
	r := p.run(e)
	if r == nil {
		return nil
	}
	return []string{fmt.Sprintf("%s: %s begins", r.Step, r.Node)}
}

// atGate returns the lines for an event at a run's gate. If the run was stopped at its gate, the lines say so. For
// other events, the view of the step's kind defines the lines.
func atGate(p *progress, e tutti.Event) []string {
	r := p.run(e)
	if r == nil {
		return nil
	}
	if b, ok := e.Body.(*tutti.RunGated); ok && b.Verdict == tutti.GateStop {
		return []string{fmt.Sprintf("%s: %s stopped at its gate: %s", r.Step, r.Node, b.Reason)}
	}
	if text := viewOf(p.step(r.Step)).gate(e.Body); text != "" {
		return []string{fmt.Sprintf("%s: %s %s", r.Step, r.Node, text)}
	}
	return nil
}

func endLine(p *progress, e tutti.Event) []string { return describeEnd(p, p.run(e)) }

// endAbove returns the lines that stay above the tree after a run has ended. There are lines if the run failed, or
// if it was a noop run that would change something.
func endAbove(p *progress, e tutti.Event) (lines []string, bad bool) {
	r := p.run(e)
	if r == nil {
		return nil, false
	}
	o := r.Outcome()
	if o != "" && !o.Good() || r.Result != nil && len(r.Result.Changes) > 0 {
		lines = describeEnd(p, r)
	}
	return lines, !o.Good()
}

func describeEnd(p *progress, r *engine.Run) []string {
	if r == nil || r.Result != nil && r.Result.Stopped {
		return nil
	}
	out := []string{fmt.Sprintf("%s: %s %s", r.Step, r.Node, ending(r))}
	if r.Result != nil {
		for _, d := range p.said.details(r) {
			out = append(out, "    "+d)
		}
	}
	return out
}
