package engine

import (
	"fmt"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/fleet"
)

// The type `sleeping` implements sleep steps. A sleep step lets some time pass. The time counts from the StepStarted
// event, so it also passes while no server is running.
type sleeping struct{ alone }

// Sleep implements tutti.StepTable.
func (kinds) Sleep() stepKind { return sleeping{} }

func (k sleeping) next(j *Job, st *Step, v View, _ *budget) []tutti.Body {
	whole := fleet.Duration(st.Sleep.For)
	if st.State != Active {
		return k.begin(j, st, fmt.Sprintf("would sleep %s: noop", whole))
	}
	slept := v.Now.Sub(v.begun(st.StartedAt))
	body := &tutti.StepFinished{Job: j.ID, Step: st.Name}
	switch {
	case j.Halted():
		body.Message = fmt.Sprintf("slept %s of %s: %s", slept.Round(time.Second), whole, j.WhyHalted())
	case slept < st.Sleep.For:
		return nil
	default:
		body.OK, body.Message = true, "slept "+whole
	}
	return []tutti.Body{body}
}

// The method `begun` returns when something began according to the log. If the logged time is in the future, the
// clock that wrote it was ahead. In that case, the result is the time when this server began to serve.
func (v View) begun(logged time.Time) time.Time {
	if logged.After(v.Now) {
		return v.Since
	}
	return logged
}
