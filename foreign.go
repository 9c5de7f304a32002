package tutti

import (
	"time"
)

// Foreign is a run that Tutti did not start, as its node tells it: judged by the
// report that Puppet has left, or by its agent. Result.Run is the transaction's uuid.
type Foreign struct {
	Result      Result `json:"result"`
	Environment string `json:"environment,omitempty"`
	Puppet      string `json:"puppet,omitempty"`
	Noop        bool   `json:"noop,omitempty"`
	// Whole: it certainly applied all of a new catalog of the node's Puppet Server, for
	// the node's own environment (ADR 0011).
	Whole bool `json:"whole,omitempty"`
	// Unwatched: it ended while nobody looked at the node. Others may have ended before it in that time, and nothing is
	// known of them: a report replaces the one before it.
	Unwatched bool `json:"unwatched,omitempty"`
	// Ago is how long before it was told it had begun, at least, by a clock that nobody sets. Zero: nobody knows, and then it
	// makes no node good.
	Ago time.Duration `json:"ago,omitempty"`
	// Local is set for a run that the node's agent began without an order (ADR 0023); nil:
	// nobody knows who did.
	Local *Local `json:"local,omitempty"`
}

// Local is what an agent says of a run that it began without an order. It was told the last known
// answers, and has published nothing.
type Local struct {
	Safety bool `json:"safety,omitempty"` // the agent began it by itself; else a person on the node
	Away   bool `json:"away,omitempty"`   // the server did not answer when it began
	// Code is empty for ProgramAgent.
	Code Digest `json:"code,omitempty"`
	// As is the run of which it had the code, the environment, the program, all answers and the catalog; empty: one of
	// them was another.
	As RunID `json:"as,omitempty"`
}

// Kind says in words which kind of run that no server ordered it is; nil is one that nobody knows who began.
func (l *Local) Kind() string {
	switch {
	case l == nil:
		return "foreign run"
	case l.Safety:
		return "safety run without the server"
	}
	return "run by a person on the node"
}

// KeptForeign is how many foreign runs of a node are kept: the latest by their start.
const KeptForeign = 5

// Disturbs reports whether the run, or one before it of which nobody knows, may have changed what other runs have made.
// A local run that ended while it applied, without a report, has no counts.
func (f Foreign) Disturbs() bool {
	if f.Unwatched || f.Noop {
		return f.Unwatched
	}
	return f.Result.Counts.Changed > 0 || f.Result.Counts.Failed > 0 || f.Local != nil && !f.Result.Outcome.Good() && f.Result.PassedGate()
}

// Validate checks what a node may claim about a foreign run.
func (f Foreign) Validate() error {
	r := f.Result
	if err := r.Validate(); err != nil {
		return err
	}
	if f.Ago < 0 {
		return Errorf(CodeInvalid, "foreign run %s: it began %s after it was told", r.Run, -f.Ago)
	}
	if f.Local != nil {
		return f.validateLocal()
	}
	switch {
	case r.Stopped || len(r.Waits) > 0 || r.Log != "" || r.Record != "" || r.Report == "":
		return Errorf(CodeInvalid, "foreign run %s: it has a gate, a log or a record, or no report", r.Run)
	case r.Outcome != Unchanged && r.Outcome != Changed && r.Outcome != Failed:
		return Errorf(CodeInvalid, "foreign run %s: outcome %q", r.Run, string(r.Outcome))
	}
	return nil
}

// validateLocal checks a run of which the agent itself says how it ended.
func (f Foreign) validateLocal() error {
	r := f.Result
	if r.Stopped || r.Log != "" || r.Record != "" || f.Whole {
		return Errorf(CodeInvalid, "local run %s: it has a gate, a log or a record, or is whole", r.Run)
	}
	if f.Local.As != "" {
		if err := f.Local.As.Validate(); err != nil {
			return err
		}
	}
	if f.Local.Code != "" {
		return f.Local.Code.Validate()
	}
	return nil
}
