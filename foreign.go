package tutti

import (
	"time"
)

// Foreign is a node's report about a run that Tutti did not start. The judgement comes from the
// report that Puppet has left, or from the agent. Result.Run is the uuid of Puppet's transaction.
type Foreign struct {
	Result      Result `json:"result"`
	Environment string `json:"environment,omitempty"`
	Puppet      string `json:"puppet,omitempty"`
	Noop        bool   `json:"noop,omitempty"`
	// Whole is true if the run certainly applied a whole new catalog, from the node's Puppet Server and for the node's
	// own environment (ADR 0011).
	Whole bool `json:"whole,omitempty"`
	// Unwatched is true if the run ended while no agent watched the node. During that time, other runs may have ended
	// before this run. The agent knows nothing about the other runs, because each report replaces the report before it.
	Unwatched bool `json:"unwatched,omitempty"`
	// Ago is the minimum time between the beginning of the run and the agent's message. A clock that nobody can set
	// measures this time. An Ago of zero means that the time is unknown. If the time is unknown, the run does not make
	// the node good.
	Ago time.Duration `json:"ago,omitempty"`
	// Local is set for a run that the node's agent began without an order (ADR 0023). If Local is
	// nil, the server does not know who began the run.
	Local *Local `json:"local,omitempty"`
}

// Local is an agent's report about a run that it began without an order. A local run uses the last
// known answers and publishes nothing.
type Local struct {
	// Safety is true if the agent began the run by itself, and false if a person on the node did.
	Safety bool `json:"safety,omitempty"`
	Away   bool `json:"away,omitempty"` // Away is true if the server did not answer when the run began.
	// Code is empty for a run with ProgramAgent.
	Code Digest `json:"code,omitempty"`
	// As contains the id of the earlier run that had the same code, environment, program, answers and catalog. If one
	// of these five was different, or if Unpublished has keys, As is empty.
	As RunID `json:"as,omitempty"`
	// Unpublished are the first keys, sorted, that this run would have published or withdrawn if the server had ordered
	// it. A key is also here if the agent does not know what the node has published. Agents of release 0.3 and earlier
	// never report these keys.
	Unpublished []string `json:"unpublished,omitempty"`
}

// Kind returns words for the kind of a run that no server ordered. If l is nil, nobody knows who began the run.
func (l *Local) Kind() string {
	switch {
	case l == nil:
		return "foreign run"
	case l.Safety:
		return "safety run without the server"
	}
	return "run by a person on the node"
}

// KeptForeign is the number of foreign runs that the server keeps for each node: the latest by their start.
const KeptForeign = 5

// Disturbs reports whether this run may have changed the results of other runs, or should have
// published something. Disturbs also returns true if an unknown run may have ended before this run.
// A local run in mode apply that failed after its gate always disturbs: if it left no report, the
// number of its changes is unknown. A noop run of Puppet also disturbs if it changed resources with
// `noop => false`.
func (f Foreign) Disturbs() bool {
	if f.Unwatched || f.Result.Counts.Changed > 0 || f.Local != nil && len(f.Local.Unpublished) > 0 {
		return true
	}
	return !f.Noop && (f.Result.Counts.Failed > 0 || f.Local != nil && !f.Result.Outcome.Good() && f.Result.PassedGate())
}

// Validate checks a node's report about a foreign run.
func (f Foreign) Validate() error {
	r := f.Result
	if err := r.Validate(); err != nil {
		return err
	}
	if f.Ago < 0 {
		return Errorf(CodeInvalid, "foreign run %s: it began %s after its report", r.Run, -f.Ago)
	}
	if f.Local != nil {
		return f.validateLocal()
	}
	switch {
	case r.Stopped || len(r.Waits) > 0 || r.Log != "" || r.Record != "" || r.Report == "":
		return Errorf(CodeInvalid, "foreign run %s: it has a gate, a log or a record, or it has no report", r.Run)
	case r.Outcome != Unchanged && r.Outcome != Changed && r.Outcome != Failed:
		return Errorf(CodeInvalid, "foreign run %s: outcome %q", r.Run, string(r.Outcome))
	}
	return nil
}

// validateLocal checks a run whose result the agent itself reports.
func (f Foreign) validateLocal() error {
	r := f.Result
	if r.Stopped || r.Log != "" || r.Record != "" || f.Whole {
		return Errorf(CodeInvalid, "local run %s: it has a gate, a log or a record, or is marked as whole", r.Run)
	}
	if f.Local.As != "" {
		if err := f.Local.As.Validate(); err != nil {
			return err
		}
	}
	if len(f.Local.Unpublished) > MaxFailures {
		return Errorf(CodeInvalid, "local run %s: %d keys, at most %d", r.Run, len(f.Local.Unpublished), MaxFailures)
	}
	for _, key := range f.Local.Unpublished {
		if err := ValidateKey(key); err != nil {
			return err
		}
	}
	if f.Local.Code != "" {
		return f.Local.Code.Validate()
	}
	return nil
}
