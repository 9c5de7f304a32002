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
	// Unwatched: it ended while no agent watched the node. Other runs may have ended before it in that time. Nothing is
	// known of them, because a report replaces the one before it.
	Unwatched bool `json:"unwatched,omitempty"`
	// Ago is how long before the telling the run had begun, at least, by a clock that nobody sets. Zero: that is unknown,
	// and then the run makes no node good.
	Ago time.Duration `json:"ago,omitempty"`
	// Local is set for a run that the node's agent began without an order (ADR 0023); nil:
	// it is unknown who began the run.
	Local *Local `json:"local,omitempty"`
}

// Local is what an agent says of a run that it began without an order. The run got the last
// known answers, and has published nothing.
type Local struct {
	Safety bool `json:"safety,omitempty"` // the agent began it by itself; else a person on the node
	Away   bool `json:"away,omitempty"`   // the server did not answer when it began
	// Code is empty for ProgramAgent.
	Code Digest `json:"code,omitempty"`
	// As is the run that had the same code, environment, program, answers and catalog; empty: one of them was
	// different.
	As RunID `json:"as,omitempty"`
}

// Kind names, in words, the kind of a run that no server ordered. Nil is a run of which it is unknown who began it.
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

// Disturbs reports whether the run, or an unknown run before it, may have changed what other runs have made.
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
