package tutti

import (
	"fmt"
	"slices"
	"strings"
)

// Capability names something that a server may ask of an agent, and that an agent of
// another release may not know.
type Capability string

// CapabilityRun is the one kind of order: a run of Puppet with its environment, code and timeout.
const CapabilityRun Capability = "run"

// CapabilityFacts is of an agent that tells, after each run, which facts the node has then.
const CapabilityFacts Capability = "tells_facts"

// CapabilityRotateCA is of an agent that follows a rotation of the CA (ADR 0027).
const CapabilityRotateCA Capability = "rotate_ca"

// CapabilityStatements belongs to an agent that reads the statements of code keys (ADR 0026).
const CapabilityStatements Capability = "statements"

// orderOption is a capability that an order asks for by one of its fields.
type orderOption struct {
	name  Capability
	field string // of Order
	asks  func(Order) bool
}

// orderOptions has a row for each thing that an order can ask for besides a plain run.
var orderOptions = []orderOption{
	{"noop", "Mode", func(o Order) bool { return o.Mode == ModeNoop }},
	{"compile", "Mode", func(o Order) bool { return o.Mode == ModeCompile }},
	{"puppet_agent", "Program", func(o Order) bool { return o.Program == ProgramAgent }},
	{"tags", "Tags", func(o Order) bool { return len(o.Tags) > 0 }},
	{"skip_tags", "SkipTags", func(o Order) bool { return len(o.SkipTags) > 0 }},
	{"debug", "Debug", func(o Order) bool { return o.Debug }},
	{"fresh_facts", "FreshFacts", func(o Order) bool { return o.FreshFacts }},
	{"exclusive", "Exclusive", func(o Order) bool { return o.Exclusive }},
}

// firstRelease is what agents of release 0.2.0 know and do not say. The source is commit
// 7a084b3: Order in event.go, RemoteActions in remote.go. It never changes; only a test that
// needs an agent which is too old builds a server with another list (go build -ldflags -X).
var firstRelease = "run noop compile puppet_agent tags skip_tags debug fresh_facts exclusive " +
	"remote.disable remote.enable remote.facts remote.last_run_summary remote.resource remote.runonce remote.status"

// Capabilities are all that this release knows, sorted. An agent lists them in its claims.
func Capabilities() []Capability {
	all := []Capability{CapabilityRun, CapabilityFacts, CapabilityStatements, CapabilityRotateCA}
	for _, option := range orderOptions {
		all = append(all, option.name)
	}
	for _, action := range RemoteActions {
		all = append(all, action.Needs())
	}
	slices.Sort(all)
	return all
}

// Needs returns what an agent must know to carry out the order.
func (o Order) Needs() []Capability {
	needs := []Capability{CapabilityRun}
	for _, option := range orderOptions {
		if option.asks(o) {
			needs = append(needs, option.name)
		}
	}
	return needs
}

// Needs returns what an agent must know to answer a question with the action.
func (a RemoteAction) Needs() Capability { return Capability("remote." + string(a)) }

// Lacking returns those of the needs that an agent that knows these does not know. An agent that lists
// nothing is one of release 0.2.0 or before.
func Lacking(knows, needs []Capability) []Capability {
	if len(knows) == 0 {
		for name := range strings.FieldsSeq(firstRelease) {
			knows = append(knows, Capability(name))
		}
	}
	var out []Capability
	for _, need := range needs {
		if !slices.Contains(knows, need) {
			out = append(out, need)
		}
	}
	return out
}

// TooOld says of a node's agent what it does not know, and what to do. An empty version is
// one that the agent did not say.
func TooOld(node NodeName, version string, lacks []Capability) string {
	if version == "" {
		version = "of release 0.2.0 or before"
	}
	return fmt.Sprintf("its agent (%s) does not know %s: upgrade tutti on %s", version, JoinWords(lacks), node)
}
