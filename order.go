package tutti

import "time"

// Order is what a node is told to do by one run.
type Order struct {
	Run         RunID         `json:"run"`
	Node        NodeName      `json:"node"`
	Job         JobID         `json:"job,omitempty"`
	Step        StepName      `json:"step,omitempty"`
	Mode        Mode          `json:"mode"`
	Environment string        `json:"environment"`
	Code        Digest        `json:"code"`
	Timeout     time.Duration `json:"timeout"`
	Attempt     int           `json:"attempt"` // 1, and one more for each stop at the gate
	// Program is empty for ProgramApply. An order for ProgramAgent has no Code, and
	// an empty Environment leaves that to the node and its Puppet Server.
	Program  Program  `json:"program,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	SkipTags []string `json:"skip_tags,omitempty"`
	Debug    bool     `json:"debug,omitempty"`
	// FreshFacts: the run uses no facts that were collected before it began.
	FreshFacts bool `json:"fresh_facts,omitempty"`
	// VolatileFacts are names of facts that do not count where facts are compared. An agent that
	// does not know the list compares no facts.
	VolatileFacts []string `json:"volatile_facts,omitempty"`
	// Exclusive: its job holds the node; without that it is not begun.
	Exclusive bool `json:"exclusive,omitempty"`
	// Proof: it is stopped at its gate, and the node is good, if nothing can have
	// changed since its last run.
	Proof bool `json:"proof,omitempty"`
}

// Validate refuses an order that no node can carry out.
func (o Order) Validate() error {
	if err := o.Run.Validate(); err != nil {
		return err
	}
	if err := o.Node.Validate(); err != nil {
		return err
	}
	if o.Mode != ModeApply && o.Mode != ModeNoop && o.Mode != ModeCompile || o.Timeout < 0 {
		return Errorf(CodeInvalid, "order of run %s: mode %q, timeout %s", o.Run, string(o.Mode), o.Timeout)
	}
	if o.Program == ProgramAgent && o.Code == "" {
		return nil
	}
	if o.Program != "" {
		return Errorf(CodeInvalid, "order of run %s: program %q with code %q", o.Run, string(o.Program), string(o.Code))
	}
	return o.Code.Validate()
}

// Full reports whether the run changes all that its catalog asks for: by others no
// node is judged, and they withdraw nothing.
func (o Order) Full() bool { return o.Mode == ModeApply && len(o.Tags) == 0 && len(o.SkipTags) == 0 }

// Previews reports whether a run of this order looks at all that a full run would, and changes nothing. One of an environment
// that somebody named, which a Puppet Server has, says nothing of the node's own.
func (o Order) Previews() bool {
	elsewhere := o.Program == ProgramAgent && o.Environment != ""
	return o.Mode != ModeApply && len(o.Tags) == 0 && len(o.SkipTags) == 0 && !elsewhere
}
