package tutti

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// StepKind names what a step does: `run`. It is the kind's key in the fleet file and
// in JSON.
type StepKind string

// The kinds of steps.
const (
	StepRun      StepKind = "run"
	StepConverge StepKind = "converge"
	StepWait     StepKind = "wait"
	StepSleep    StepKind = "sleep"
)

// StepNodes says on which nodes the steps of a kind act.
type StepNodes string

// The three ways.
const (
	NodesNone   StepNodes = "none"   // on no node
	NodesListed StepNodes = "listed" // on all nodes of its target, which a job resolves when it starts
	NodesFound  StepNodes = "found"  // on those nodes of its target that need it, as the job goes on
)

// stepKinds is the table of kinds, in the order in which people are told of them.
var stepKinds = []struct {
	kind   StepKind
	nodes  StepNodes
	is     func(Step) bool
	target func(Step) string // a group, or a node
}{
	{StepRun, NodesListed, func(s Step) bool { return s.Run != nil }, func(s Step) string { return s.Run.Target }},
	{StepConverge, NodesFound, func(s Step) bool { return s.Converge != nil }, func(s Step) string { return s.Converge.Target }},
	{StepWait, NodesNone, func(s Step) bool { return s.Wait != nil }, noTarget},
	{StepSleep, NodesNone, func(s Step) bool { return s.Sleep != nil }, noTarget},
}

func noTarget(Step) string { return "" }

// StepTable is what a layer has for each kind of step. The table of a layer is a type
// with one method for each kind; the method lies in the kind's file. A layer that
// lacks a kind does not compile.
type StepTable[T any] interface {
	Run() T
	Converge() T
	Wait() T
	Sleep() T
}

// ForStep returns what a layer's table has for a kind. It returns false for a kind that
// this release does not know: only viewers meet one (see Step.Unknown).
func ForStep[T any](table StepTable[T], kind StepKind) (row T, known bool) {
	switch kind {
	case StepRun:
		return table.Run(), true
	case StepConverge:
		return table.Converge(), true
	case StepWait:
		return table.Wait(), true
	case StepSleep:
		return table.Sleep(), true
	}
	return row, false
}

// StepKinds returns all kinds, in the order in which people are told of them.
func StepKinds() []StepKind {
	out := make([]StepKind, len(stepKinds))
	for i, row := range stepKinds {
		out[i] = row.kind
	}
	return out
}

// Step is one node of a plan. Exactly one of Run, Converge, Wait and Sleep is set:
// Kind says which. After names the steps it waits for, resolved: a step without an edge in the
// file follows the one before it.
type Step struct {
	Name  StepName   `json:"name"`
	After []StepName `json:"after,omitempty"`
	// PerNode makes a node wait for the same node of the earlier steps only.
	PerNode  bool          `json:"per_node,omitempty"`
	Timeout  time.Duration `json:"timeout"`
	Run      *RunStep      `json:"run,omitempty"`
	Wait     *WaitStep     `json:"wait,omitempty"`
	Converge *ConvergeStep `json:"converge,omitempty"`
	Sleep    *SleepStep    `json:"sleep,omitempty"`
	// Unknown is a step of a kind that this release does not know. Only viewers
	// decode one, to show it by its name; Plan.Validate refuses it.
	Unknown *UnknownStep `json:"-"`
}

// UnknownStep is what a viewer knows of a step of a later release.
type UnknownStep struct {
	Kind StepKind
	Raw  json.RawMessage // the whole step, as it came
}

// Kind returns what the step does, empty if nothing says it. Every question about
// the kind of a step goes through it.
func (s Step) Kind() StepKind {
	for _, row := range stepKinds {
		if row.is(s) {
			return row.kind
		}
	}
	if s.Unknown != nil {
		return s.Unknown.Kind
	}
	return ""
}

// ActsOn returns on which nodes the step acts. Of an unknown kind nobody can say
// before: they are found.
func (s Step) ActsOn() StepNodes {
	for _, row := range stepKinds {
		if row.is(s) {
			return row.nodes
		}
	}
	return NodesFound
}

// Target returns the group or node on which the step acts. It is empty for the whole
// fleet, for a step that acts on no node, and for an unknown kind.
func (s Step) Target() string {
	for _, row := range stepKinds {
		if row.is(s) {
			return row.target(s)
		}
	}
	return ""
}

// validateKind refuses a step that is of no kind, of several, or of an unknown one.
func (s Step) validateKind() error {
	if s.Unknown != nil {
		return Errorf(CodeInvalid, "its kind %q is not known to this release; there are %s", string(s.Unknown.Kind), JoinWords(StepKinds()))
	}
	kinds := 0
	for _, row := range stepKinds {
		if row.is(s) {
			kinds++
		}
	}
	if kinds != 1 {
		return Errorf(CodeInvalid, "it has %d kinds; it has to be one of %s", kinds, JoinWords(StepKinds()))
	}
	if s.Sleep != nil {
		return s.Sleep.Validate()
	}
	return nil
}

// plainStep is a Step with the JSON that its fields say.
type plainStep Step

// MarshalJSON encodes a step; one of an unknown kind as it came.
func (s Step) MarshalJSON() ([]byte, error) {
	if s.Unknown != nil {
		return s.Unknown.Raw, nil
	}
	return json.Marshal(plainStep(s))
}

// UnmarshalJSON decodes a step. Of a kind that this release does not know it keeps
// the name: the keys that no step of this release has.
func (s *Step) UnmarshalJSON(raw []byte) error {
	*s = Step{}
	if err := json.Unmarshal(raw, (*plainStep)(s)); err != nil {
		return err
	}
	if s.Kind() != "" {
		return nil
	}
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	maps.DeleteFunc(fields, func(key string, _ json.RawMessage) bool { return knownStepKey(key) })
	if len(fields) > 0 {
		kind := strings.Join(slices.Sorted(maps.Keys(fields)), "+")
		s.Unknown = &UnknownStep{Kind: StepKind(kind), Raw: slices.Clone(raw)}
	}
	return nil
}

// knownStepKey reports whether a step of this release may have a key in JSON, in
// whose case encoding/json takes no interest.
func knownStepKey(key string) bool {
	key = strings.ToLower(key)
	return slices.Contains([]string{"name", "after", "per_node", "timeout"}, key) || slices.Contains(StepKinds(), StepKind(key))
}

// RunStep runs Puppet on every node of its target, at most Limit at once
// (0: no limit of its own).
type RunStep struct {
	Target string   `json:"target"` // a group, or a node
	Accept []Accept `json:"accept,omitempty"`
	Limit  int      `json:"limit,omitempty"`
	RunOptions
}

// ConvergeStep runs Puppet where and until it is needed: on the nodes of its target
// that are not good, in the order that their reads and publications ask for. Timeout
// of the step is that of each run.
type ConvergeStep struct {
	Target string `json:"target,omitempty"` // a group, or a node; empty: the whole fleet
	Limit  int    `json:"limit,omitempty"`  // runs at once, 0: no limit of its own
	// MaxFailed is after how many failed nodes nothing more begins, 0: never.
	MaxFailed int `json:"max_failed,omitempty"`
	// Prove: also a node that needs nothing compiles once, and applies if it has to.
	Prove bool `json:"prove,omitempty"`
	// Reaction: the server began it, by a change.
	Reaction bool `json:"reaction,omitempty"`
}

// Accept names an outcome other than a good one after which a plan goes on:
// `failed:resources` or `lost`.
type Accept string

// The outcomes that a plan may accept. A compile error never is.
const (
	AcceptFailedResources Accept = "failed:resources"
	AcceptLost            Accept = "lost"
)

// Accepts reports whether a run that ended so lets the plan go on.
func (s RunStep) Accepts(r Result) bool {
	if r.Outcome.Good() {
		return true
	}
	for _, a := range s.Accept {
		if a == AcceptFailedResources && r.Outcome == Failed && r.Reason == BecauseResources ||
			a == AcceptLost && r.Outcome == Lost {
			return true
		}
	}
	return false
}

// WaitStep waits for something outside Puppet; exactly one of HTTP, TCP, PuppetDB
// and Value is set. The server asks.
type WaitStep struct {
	HTTP string `json:"http,omitempty"` // a URL that answers 2xx
	TCP  string `json:"tcp,omitempty"`  // host:port that accepts a connection
	// PuppetDB is the URL of one that has stored the catalogs of the runs through the
	// agent in the steps that the wait comes after.
	PuppetDB string          `json:"puppetdb,omitempty"`
	Value    string          `json:"value,omitempty"`  // a key that has a value,
	Equals   json.RawMessage `json:"equals,omitempty"` // this one if given
}

// Subject names what the step waits for, for people.
func (w WaitStep) Subject() string {
	switch {
	case w.HTTP != "":
		return w.HTTP
	case w.TCP != "":
		return "tcp " + w.TCP
	case w.PuppetDB != "":
		return "the catalogs in PuppetDB " + w.PuppetDB
	case len(w.Equals) > 0:
		return "value " + w.Value + " = " + string(w.Equals)
	}
	return "value " + w.Value
}

// SleepStep lets some time pass. The timeout of the step is the same time.
type SleepStep struct {
	For time.Duration `json:"for"`
}

// MaxSleep is the longest time that a step may sleep.
const MaxSleep = 24 * time.Hour

// Validate refuses a time that does not pass, and one that is longer than MaxSleep.
func (s SleepStep) Validate() error {
	if s.For <= 0 || s.For > MaxSleep {
		return Errorf(CodeInvalid, "sleep: %s must be positive and at most %d hours", s.For, MaxSleep/time.Hour)
	}
	return nil
}
