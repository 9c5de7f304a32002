package engine

import (
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
)

// The type `waiting` implements wait steps. A wait step waits for something outside Puppet. The server asks again
// and again. The step ends when an answer is good, or when the step's timeout is over.
type waiting struct{ alone }

// Wait implements tutti.StepTable.
func (kinds) Wait() stepKind { return waiting{} }

func (k waiting) next(j *Job, st *Step, v View, _ *budget) []tutti.Body {
	if st.State != Active {
		// A noop job skips the wait, because its earlier runs do not create what the step waits for.
		return k.begin(j, st, "not waited for: noop")
	}
	waited := v.Now.Sub(v.from(st.StartedAt))
	if !j.Halted() && waited < st.Timeout {
		return nil
	}
	return []tutti.Body{&tutti.StepFinished{Job: j.ID, Step: st.Name, Message: j.waitedFor(st, v, waited)}}
}

func (j *Job) waitedFor(st *Step, v View, waited time.Duration) string {
	switch {
	case j.Cancelled:
		return "cancelled while waiting for " + st.Wait.Subject()
	case j.Halted():
		return "given up while waiting for " + st.Wait.Subject() + ": " + j.WhyHalted()
	}
	said := fmt.Sprintf("waited %s for %s", waited.Round(time.Second), st.Wait.Subject())
	if v.LastAnswer != nil {
		if answer := v.LastAnswer(j.ID, st.Name); answer != "" {
			said += "; the last answer: " + answer
		}
	}
	return said
}
