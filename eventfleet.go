package tutti

import (
	"strconv"
	"time"
)

// fleetEvents are the kinds of events of the whole fleet.
var fleetEvents = []eventKind{
	{func() Body { return new(EpochBegun) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(FleetSet) }, ScopeNone, TrailOperators, KeepLast},
	{func() Body { return new(CodePushed) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(CodeReleased) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(CodeResigned) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(KeysTrusted) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(Paused) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(Unpaused) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(ReportsRetired) }, ScopeNone, TrailOperators, KeepLast},
	{func() Body { return new(CARotated) }, ScopeNone, TrailAlways, KeepOwn},
}

// FleetSet replaces the fleet file. Source is its text, for people. Statement is what an operator has
// signed of it; nil: whoever pushed it has no code key. Counter is the highest one that was signed of a fleet file.
type FleetSet struct {
	Fleet     Fleet      `json:"fleet"`
	Digest    Digest     `json:"digest"`
	Source    string     `json:"source,omitempty"`
	Counter   uint64     `json:"counter,omitempty"`
	Statement *Statement `json:"statement,omitempty"`
}

// Kind implements Body.
func (*FleetSet) Kind() string { return "fleet.set" }

// ID implements Body.
func (*FleetSet) ID() string { return "fleet" }

// Validate refuses plans that cannot be executed.
func (b *FleetSet) Validate() error {
	for _, p := range b.Fleet.Plans {
		if err := p.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// CodePushed says that a signed manifest and all its files are stored.
type CodePushed struct {
	Environment string `json:"environment"`
	Code        Digest `json:"code"`
	Signed      Digest `json:"signed"` // the blob of SignedCode
	Files       int    `json:"files"`
	Bytes       int64  `json:"bytes"`
	// Held: only Canary nodes run with it by themselves before it is released.
	Held   bool `json:"held,omitempty"`
	Canary int  `json:"canary,omitempty"`
	// These belong to code that is held: the code that nodes go on with (empty: none), and the codes that were pushed
	// since and never released, the latest last.
	Released   Digest   `json:"released,omitempty"`
	PassedOver []Digest `json:"passed_over,omitempty"`
	// Counter is what the Statement says, which an operator has signed. 0 and nil: release 0.2.0 or
	// before has pushed.
	Counter   uint64     `json:"counter,omitempty"`
	Statement *Statement `json:"statement,omitempty"`
}

// CodeResigned replaces what was signed of code that nodes may be told to run. Counter is its statement's.
type CodeResigned struct {
	Environment string    `json:"environment"`
	Code        Digest    `json:"code"`
	Counter     uint64    `json:"counter"`
	Statement   Statement `json:"statement"`
}

// Kind implements Body.
func (*CodeResigned) Kind() string { return "code.signed" }

// ID implements Body.
func (b *CodeResigned) ID() string { return string(b.Code) }

// KeysTrusted says which code keys sign from now on. Statement is of kind StatementTrust.
type KeysTrusted struct {
	Counter   uint64    `json:"counter"`
	Keys      []Digest  `json:"keys"`
	Statement Statement `json:"statement"`
}

// Kind implements Body.
func (*KeysTrusted) Kind() string { return "keys.trusted" }

// ID implements Body.
func (b *KeysTrusted) ID() string { return strconv.FormatUint(b.Counter, 10) }

// CodeReleased lets nodes react to code that was held.
type CodeReleased struct {
	Environment string `json:"environment"`
	Code        Digest `json:"code"`
	Reason      string `json:"reason,omitempty"` // empty: a person wanted it
}

// Kind implements Body.
func (*CodeReleased) Kind() string { return "code.released" }

// ID implements Body.
func (b *CodeReleased) ID() string { return b.Environment }

// Goes returns the code with which nodes run by themselves, but canaries; empty: with none.
func (b CodePushed) Goes() Digest {
	if b.Held {
		return b.Released
	}
	return b.Code
}

// Kind implements Body.
func (*CodePushed) Kind() string { return "code.pushed" }

// ID implements Body.
func (b *CodePushed) ID() string { return b.Environment }

// Paused keeps converging from starting anything on a target: a group, a node, or
// (empty) the whole fleet. It replaces what was said of the same target before.
type Paused struct {
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"` // zero: until it is unpaused
}

// Kind implements Body.
func (*Paused) Kind() string { return "target.paused" }

// ID implements Body.
func (b *Paused) ID() string { return pausedID(b.Target) }

// Unpaused ends that.
type Unpaused struct {
	Target string `json:"target"`
}

// Kind implements Body.
func (*Unpaused) Kind() string { return "target.unpaused" }

// ID implements Body.
func (b *Unpaused) ID() string { return pausedID(b.Target) }

// pausedID names a target; an id is never empty.
func pausedID(target string) string {
	if target == "" {
		return "fleet"
	}
	return "target " + target
}

// EpochBegun is the first event of a log, and the first one after each restore of it. What
// is in a log before the first one is of epoch 1.
type EpochBegun struct {
	Epoch
}

// Kind implements Body.
func (*EpochBegun) Kind() string { return "epoch.begun" }

// ID implements Body.
func (b *EpochBegun) ID() string { return strconv.FormatUint(b.Number, 10) }

// ReportsRetired says which reports and logs of runs the server has let go by count or age, each up to an event. A
// report of a run that ended later and is not there was lost. Before the first one of these events nobody knows.
type ReportsRetired struct {
	Through uint64 `json:"through"` // of runs that Tutti started: run.finished
	Foreign uint64 `json:"foreign"` // of foreign runs: run.foreign
}

// Kind implements Body.
func (*ReportsRetired) Kind() string { return "reports.retired" }

// ID implements Body.
func (b *ReportsRetired) ID() string { return "reports" }
