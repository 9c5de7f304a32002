package tutti

import (
	"strconv"
	"time"
)

// fleetEvents are the kinds of events about the whole fleet.
var fleetEvents = []eventKind{
	{func() Body { return new(EpochBegun) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(FleetSet) }, ScopeNone, TrailOperators, KeepLast},
	{func() Body { return new(CodePushed) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(CodeRetired) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(CodeReleased) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(CodeResigned) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(KeysTrusted) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(Paused) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(Unpaused) }, ScopeNone, TrailOperators, KeepOwn},
	{func() Body { return new(ReportsRetired) }, ScopeNone, TrailOperators, KeepLast},
	{func() Body { return new(CARotated) }, ScopeNone, TrailAlways, KeepOwn},
}

// FleetSet replaces the fleet file. Source is the text of the fleet file, for people. Statement is the signed
// statement about the fleet file. Statement is nil if the operator who pushed the file has no code key. Counter
// is the highest counter that was ever signed for a fleet file.
type FleetSet struct {
	Fleet     Fleet      `json:"fleet"`
	Digest    Digest     `json:"digest"`
	Source    string     `json:"source,omitempty"`
	Counter   uint64     `json:"counter,omitempty"`
	Statement *Statement `json:"statement,omitempty"`
	// Where is another one after each push that changes the conditions of groups with `where`, even if an earlier fleet file
	// had the same conditions: what was found about those is out of date. It is empty if no fleet file had conditions.
	Where Digest `json:"where,omitempty"`
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
	// Held is true if the code waits for its release. Before the release only Canary nodes run the new code by
	// themselves.
	Held   bool `json:"held,omitempty"`
	Canary int  `json:"canary,omitempty"`
	// Released and PassedOver belong to held code. Released is the code that nodes other than canaries continue to
	// use. Released is empty if there is no released code. PassedOver lists the codes that were pushed after Released
	// and were never released. The latest code is the last in the list.
	Released   Digest   `json:"released,omitempty"`
	PassedOver []Digest `json:"passed_over,omitempty"`
	// Counter is the counter in the Statement, which an operator has signed. Release 0.2.0 and older
	// pushed without counter and statement. For pushes of these releases Counter is 0 and Statement
	// is nil.
	Counter   uint64      `json:"counter,omitempty"`
	Statement *Statement  `json:"statement,omitempty"`
	Source    *CodeSource `json:"source,omitempty"` // nil: the operator's machine did not say
}

// CodeResigned replaces the signed statement about code that the server may order nodes to run. Counter is the
// counter in the Statement.
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

// KeysTrusted says which code keys may sign from now on. Statement is of kind StatementTrust.
type KeysTrusted struct {
	Counter   uint64    `json:"counter"`
	Keys      []Digest  `json:"keys"`
	Statement Statement `json:"statement"`
}

// Kind implements Body.
func (*KeysTrusted) Kind() string { return "keys.trusted" }

// ID implements Body.
func (b *KeysTrusted) ID() string { return strconv.FormatUint(b.Counter, 10) }

// CodeReleased ends the wait of held code, so that all nodes react to this code.
type CodeReleased struct {
	Environment string `json:"environment"`
	Code        Digest `json:"code"`
	Reason      string `json:"reason,omitempty"` // Reason is empty if a person released the code.
}

// Kind implements Body.
func (*CodeReleased) Kind() string { return "code.released" }

// ID implements Body.
func (b *CodeReleased) ID() string { return b.Environment }

// Goes returns the code that nodes other than canaries run by themselves. The returned digest is empty if there
// is no such code.
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

// Paused stops converging from starting runs on a target. The target is a group, a node, or (if
// empty) the whole fleet. The event replaces an earlier pause of the same target.
type Paused struct {
	Target string    `json:"target"`
	Reason string    `json:"reason"`
	Until  time.Time `json:"until"` // Until is zero if the pause ends only with an Unpaused event.
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

// pausedID returns the event ID of a target, which must not be empty.
func pausedID(target string) string {
	if target == "" {
		return "fleet"
	}
	return "target " + target
}

// EpochBegun is the first event of a log. EpochBegun is also the first event after each restore of
// the log. Events before the first EpochBegun belong to epoch 1.
type EpochBegun struct {
	Epoch
}

// Kind implements Body.
func (*EpochBegun) Kind() string { return "epoch.begun" }

// ID implements Body.
func (b *EpochBegun) ID() string { return strconv.FormatUint(b.Number, 10) }

// ReportsRetired says which reports and logs of runs the server has deleted because of their number or age. Each
// field is the sequence of the last event whose report was deleted. If the report of a later run is missing, the
// report was lost. If the log has no such event yet, the server cannot say whether a missing report was deleted
// or lost.
type ReportsRetired struct {
	Through uint64 `json:"through"` // Through is the sequence of a run.finished event, for runs that Tutti started.
	Foreign uint64 `json:"foreign"` // Foreign is the sequence of a run.foreign event, for foreign runs.
}

// Kind implements Body.
func (*ReportsRetired) Kind() string { return "reports.retired" }

// ID implements Body.
func (b *ReportsRetired) ID() string { return "reports" }
