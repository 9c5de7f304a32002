package tutti

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"
)

// StepKind names the action of a step, for example `run`. The fleet file and JSON use the kind as a
// key.
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

// The three ways in which a step acts on nodes.
const (
	NodesNone StepNodes = "none" // on no node
	// the step acts on all nodes of its target, which the server resolves when the job starts
	NodesListed StepNodes = "listed"
	// the step acts on those nodes of its target that need a run. The server finds these nodes during the job
	NodesFound StepNodes = "found"
)

// stepKinds is the table of kinds, in the order in which people see them.
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

// StepTable has a layer's code for each kind of step. The table of a layer is a type with one method for each kind.
// Each method is in the file of its kind. If a layer lacks a kind, the layer does not compile.
type StepTable[T any] interface {
	Run() T
	Converge() T
	Wait() T
	Sleep() T
}

// ForStep returns a layer's table row for a kind. ForStep returns false for a kind that this
// release does not know. Only viewers meet an unknown kind (see Step.Unknown).
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

// StepKinds returns all kinds, in the order in which people see them.
func StepKinds() []StepKind {
	out := make([]StepKind, len(stepKinds))
	for i, row := range stepKinds {
		out[i] = row.kind
	}
	return out
}

// Step is one element of a plan. Exactly one of Run, Converge, Wait and Sleep is set. The method Kind returns which one
// is set. The field After lists the steps for which this step waits. If a step in the file names no earlier step, After
// contains the step before it.
type Step struct {
	Name  StepName   `json:"name"`
	After []StepName `json:"after,omitempty"`
	// If PerNode is true, each node waits only for its own part of the earlier steps.
	PerNode  bool          `json:"per_node,omitempty"`
	Timeout  time.Duration `json:"timeout"`
	Run      *RunStep      `json:"run,omitempty"`
	Wait     *WaitStep     `json:"wait,omitempty"`
	Converge *ConvergeStep `json:"converge,omitempty"`
	Sleep    *SleepStep    `json:"sleep,omitempty"`
	// Unknown is set for a step whose kind this release does not know. Only viewers decode an unknown
	// step, to show its name. Plan.Validate refuses it.
	Unknown *UnknownStep `json:"-"`
}

// UnknownStep is a step of a later release as a viewer sees it.
type UnknownStep struct {
	Kind StepKind
	Raw  json.RawMessage // the whole step, unchanged
}

// Kind returns the kind of the step. The result is empty if the step has no kind. All code uses
// this method to get the kind of a step.
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

// ActsOn returns on which nodes the step acts. For an unknown kind ActsOn returns NodesFound,
// because nobody can list the nodes in advance.
func (s Step) ActsOn() StepNodes {
	for _, row := range stepKinds {
		if row.is(s) {
			return row.nodes
		}
	}
	return NodesFound
}

// Target returns the group or node on which the step acts. The result is empty for the whole fleet,
// for a step without nodes, and for an unknown kind.
func (s Step) Target() string {
	for _, row := range stepKinds {
		if row.is(s) {
			return row.target(s)
		}
	}
	return ""
}

// validateKind refuses a step that has no kind, several kinds, or an unknown kind.
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
		return Errorf(CodeInvalid, "the step has %d kinds; it must have exactly one of %s", kinds, JoinWords(StepKinds()))
	}
	if s.Sleep != nil {
		return s.Sleep.Validate()
	}
	return nil
}

// plainStep is a Step that is encoded by its fields alone.
type plainStep Step

// MarshalJSON encodes a step. MarshalJSON writes a step of an unknown kind unchanged.
func (s Step) MarshalJSON() ([]byte, error) {
	if s.Unknown != nil {
		return s.Unknown.Raw, nil
	}
	return json.Marshal(plainStep(s))
}

// UnmarshalJSON decodes a step. For an unknown kind UnmarshalJSON stores the name of the kind. The
// name is the key that no step of this release has.
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

// knownStepKey reports whether a step of this release may have this key in JSON. Like
// encoding/json, knownStepKey ignores upper and lower case.
func knownStepKey(key string) bool {
	key = strings.ToLower(key)
	return slices.Contains([]string{"name", "after", "per_node", "timeout"}, key) || slices.Contains(StepKinds(), StepKind(key))
}

// RunStep runs Puppet on every node of its target. At most Limit nodes run at the same time (0
// means that the step sets no limit).
type RunStep struct {
	Target string   `json:"target"` // Target is a group or a node.
	Accept []Accept `json:"accept,omitempty"`
	Limit  int      `json:"limit,omitempty"`
	RunOptions
}

// ConvergeStep runs Puppet on those nodes of its target that are not good, until they are good. The
// order follows from the nodes' reads and publications. The timeout of the step is the timeout of
// each run.
type ConvergeStep struct {
	// Target is a group or a node. If Target is empty, the target is the whole fleet.
	Target string `json:"target,omitempty"`
	// Limit is the largest number of runs at the same time. With 0 the step sets no limit.
	Limit int `json:"limit,omitempty"`
	// MaxFailed is the number of failed nodes after which no further run begins. With 0 the number of
	// failed nodes has no limit.
	MaxFailed int `json:"max_failed,omitempty"`
	// Prove is true if even a node that needs nothing compiles once. The node applies if the compile
	// shows that the node must apply.
	Prove bool `json:"prove,omitempty"`
	// Reaction is true if the server began the step because of a change.
	Reaction bool `json:"reaction,omitempty"`
	// Only lists the nodes of a job that compiles for a diff (JobStarted.Diff), sorted. Other steps do not have it.
	Only []NodeName `json:"only,omitempty"`
}

// Accept is a bad outcome after which a plan may continue: `failed:resources` or `lost`.
type Accept string

// These are the outcomes that a plan may accept. A plan never accepts a compile error.
const (
	AcceptFailedResources Accept = "failed:resources"
	AcceptLost            Accept = "lost"
)

// Accepts reports whether the plan continues after a run with this result.
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

// WaitStep waits for something outside Puppet. Exactly one of HTTP, TCP, PuppetDB and Value is set.
// The server itself checks whether the wait is over.
type WaitStep struct {
	HTTP string `json:"http,omitempty"` // HTTP is a URL that must answer with 2xx.
	TCP  string `json:"tcp,omitempty"`  // TCP is a host:port that must accept a connection.
	// PuppetDB is the URL of a PuppetDB. The step waits until this PuppetDB has stored the catalogs
	// of the `puppet agent` runs in the earlier steps.
	PuppetDB string          `json:"puppetdb,omitempty"`
	Value    string          `json:"value,omitempty"`  // Value is a key that must have a value.
	Equals   json.RawMessage `json:"equals,omitempty"` // if set, the key must have this value
}

// Subject names, for people, the thing for which the step waits.
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

// SleepStep waits for a fixed time. The timeout of the step equals this time.
type SleepStep struct {
	For time.Duration `json:"for"`
}

// MaxSleep is the longest time that a step may sleep.
const MaxSleep = 24 * time.Hour

// Validate refuses a time that is not positive or is longer than MaxSleep.
func (s SleepStep) Validate() error {
	if s.For <= 0 || s.For > MaxSleep {
		return Errorf(CodeInvalid, "sleep: %s must be positive and at most %d hours", s.For, MaxSleep/time.Hour)
	}
	return nil
}
