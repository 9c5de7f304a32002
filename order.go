package tutti

import "time"

// Order says what a node must do in one run.
type Order struct {
	Run         RunID         `json:"run"`
	Node        NodeName      `json:"node"`
	Job         JobID         `json:"job,omitempty"`
	Step        StepName      `json:"step,omitempty"`
	Mode        Mode          `json:"mode"`
	Environment string        `json:"environment"`
	Code        Digest        `json:"code"`
	Timeout     time.Duration `json:"timeout"`
	// Attempt is 1 for the first attempt. Each stop at the gate adds 1 to Attempt.
	Attempt int `json:"attempt"`
	// Program is empty for ProgramApply. An order for ProgramAgent has no Code. If the order's
	// Environment is empty, the node and its Puppet Server choose the environment.
	Program  Program  `json:"program,omitempty"`
	Tags     []string `json:"tags,omitempty"`
	SkipTags []string `json:"skip_tags,omitempty"`
	Debug    bool     `json:"debug,omitempty"`
	// FreshFacts is true if the run must not use facts that were collected before the run began.
	FreshFacts bool `json:"fresh_facts,omitempty"`
	// VolatileFacts are the names of facts that are left out when facts are compared. An agent that
	// does not know this list compares no facts.
	VolatileFacts []string `json:"volatile_facts,omitempty"`
	// Exclusive is true if the job must hold the node. If the job does not hold the node, the node does not begin the
	// run.
	Exclusive bool `json:"exclusive,omitempty"`
	// ENC is true if the run must ask for the classes and parameters that the site's ENC gives to the node.
	ENC bool `json:"enc,omitempty"`
	// Proof is true for a run that tests whether its node is still good. If nothing can have changed
	// since the last run, the gate stops the run, and the node is good.
	Proof bool `json:"proof,omitempty"`
	// Diff is true for a compile whose catalog is only compared (ADR 0038). Its code has a statement of kind
	// StatementCompile, and no node ever applies the code by this order.
	Diff bool `json:"diff,omitempty"`
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
	if o.Diff && (o.Mode != ModeCompile || o.Program != "" || len(o.Tags)+len(o.SkipTags) > 0) {
		return Errorf(CodeInvalid, "order of run %s: a diff only compiles, with Puppet's own code and without tags", o.Run)
	}
	if o.Program == ProgramAgent && o.Code == "" {
		return nil
	}
	if o.Program != "" {
		return Errorf(CodeInvalid, "order of run %s: program %q with code %q", o.Run, string(o.Program), string(o.Code))
	}
	return o.Code.Validate()
}

// Full reports whether the run changes everything that its catalog asks for. A run that is not full does not decide
// whether a node is good, and withdraws nothing.
func (o Order) Full() bool { return o.Mode == ModeApply && len(o.Tags) == 0 && len(o.SkipTags) == 0 }

// Previews reports whether a run of this order checks everything that a full run would check, and changes nothing. A
// compile for a diff is no preview, because the node need not ever get its code.
func (o Order) Previews() bool {
	return o.Mode != ModeApply && !o.Diff && len(o.Tags) == 0 && len(o.SkipTags) == 0
}
