package tutti

// Plan is an ordered graph of steps, as data.
type Plan struct {
	Name  PlanName `json:"name"`
	Steps []Step   `json:"steps"`
	// Exclusive keeps other Puppet runs away from the nodes. If Exclusive is nil, other runs are
	// allowed.
	Exclusive *Exclusive `json:"exclusive,omitempty"`
}

// Validate checks the rules that the execution of a plan needs. Steps have different names and one
// kind each. The edges of the steps lead to existing steps and form no cycle.
func (p Plan) Validate() error {
	if p.Exclusive != nil {
		if err := p.Exclusive.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "plan %q", string(p.Name))
		}
	}
	for _, s := range p.Steps {
		if err := s.validateKind(); err != nil {
			return Wrap(CodeInvalid, err, "plan %q, step %q", string(p.Name), string(s.Name))
		}
		if p.Exclusive != nil && s.ActsOn() == NodesFound {
			return Errorf(CodeInvalid, "plan %q, step %q: an exclusive plan has no %s steps, because nobody knows their nodes in advance", string(p.Name), string(s.Name), s.Kind())
		}
	}
	return p.validateEdges()
}

// validateEdges checks names and edges. Viewers follow the edges from step to step, so viewers
// rely on these checks, too. The checks include steps of an unknown kind.
func (p Plan) validateEdges() error {
	waits := map[StepName]int{}
	after := map[StepName][]StepName{}
	for _, s := range p.Steps {
		if _, twice := waits[s.Name]; twice {
			return Errorf(CodeInvalid, "plan %q: two steps are called %q", string(p.Name), string(s.Name))
		}
		waits[s.Name] = len(s.After)
		for _, earlier := range s.After {
			after[earlier] = append(after[earlier], s.Name)
		}
	}
	for earlier := range after {
		if _, ok := waits[earlier]; !ok {
			return Errorf(CodeInvalid, "plan %q: a step follows unknown step %q", string(p.Name), string(earlier))
		}
	}
	var ready []StepName
	for name, n := range waits {
		if n == 0 {
			ready = append(ready, name)
		}
	}
	ended := 0
	for ; ended < len(ready); ended++ { // `ready` grows during the loop
		for _, next := range after[ready[ended]] {
			if waits[next]--; waits[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if ended < len(p.Steps) {
		return Errorf(CodeInvalid, "plan %q: its steps wait for each other in a cycle", string(p.Name))
	}
	return nil
}
