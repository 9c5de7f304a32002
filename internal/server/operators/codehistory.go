package operators

import (
	"context"
	"fmt"
	"slices"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// RetireCode implements tutti.CodeHistory.
func (s *Operators) RetireCode(ctx context.Context, in api.RetireCode) (tutti.CodeRetired, error) {
	out := tutti.CodeRetired{Environment: in.Environment, Gone: in.Remove}
	if in.Keep < 1 && !in.Remove {
		return out, tutti.Errorf(tutti.CodeInvalid, "keep %d codes: at least 1, because the last push stays", in.Keep)
	}
	entries, err := s.Reader.ListCode(ctx, api.CodeQuery{Environment: in.Environment})
	if err != nil {
		return out, err
	}
	for i, e := range entries {
		if in.Remove || i >= in.Keep && e.State == "" {
			out.Codes = append(out.Codes, e.Code)
		}
	}
	if len(out.Codes) == 0 {
		return out, nil
	}
	return out, s.lasting(ctx, "let code go", func(tx *tx) error {
		if in.Remove {
			if why := tx.usedBy(in.Environment); why != "" {
				return tutti.Errorf(tutti.CodeConflict, "environment %s is used by %s", in.Environment, why)
			}
		}
		now := tx.Registry.Code[in.Environment]
		if !in.Remove && slices.ContainsFunc([]tutti.Digest{now.Code, now.Goes()}, out.Retires) {
			return tutti.Errorf(tutti.CodeConflict, "somebody has pushed to environment %s meanwhile: try again", in.Environment)
		}
		if !in.DryRun {
			body := out
			if in.Remove {
				body.Counter, body.Statement = now.Counter, now.Statement
			}
			tx.Emit(tutti.Actor(ctx), &body)
		}
		return nil
	})
}

// usedBy returns what uses an environment: the fleet file, or a job that has not ended. The text is empty if nothing uses
// it.
func (tx *tx) usedBy(environment string) (why string) {
	f := tx.Fleet()
	if f.Environment.Name == environment {
		return "the fleet file, as the environment of all nodes whose groups name none"
	}
	for _, g := range f.Groups { // another group of a node may say how the node runs
		if g.Environment == environment {
			return "group " + string(g.Name)
		}
	}
	for _, p := range f.Plans {
		for _, st := range p.Steps {
			if st.Kind() == tutti.StepRun && st.Run.Environment == environment {
				return fmt.Sprintf("step %s of plan %s", st.Name, p.Name)
			}
		}
	}
	if slices.ContainsFunc(f.Environments, func(e tutti.Environment) bool { return e.Name == environment }) {
		return "the fleet file, in environments: `tutti code push` would send it again"
	}
	tx.Engine.Open(func(j *engine.Job) {
		if j.Codes[environment] != "" && why == "" {
			why = fmt.Sprintf("job %s, which has not ended", j.ID)
		}
	})
	return why
}
