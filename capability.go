package tutti

import (
	"fmt"
	"slices"
	"strings"
)

// Capability names a feature that a server may need from an agent. An agent of another release may
// not know this feature.
type Capability string

// CapabilityRun belongs to an agent that can carry out the only kind of order: a run of Puppet with
// its environment, code and timeout.
const CapabilityRun Capability = "run"

// CapabilityFacts belongs to an agent that reports after each run which facts the node has now.
const CapabilityFacts Capability = "tells_facts"

// CapabilityRotateCA belongs to an agent that can follow a rotation of the CA (ADR 0027).
const CapabilityRotateCA Capability = "rotate_ca"

// CapabilityStatements belongs to an agent that can read the statements of code keys (ADR 0026).
const CapabilityStatements Capability = "statements"

// CapabilityInventory belongs to an agent that sends its facts and catalogs for queries (ADR 0036).
const CapabilityInventory Capability = "inventory"

// orderOption is a capability that an agent needs if an order uses a certain field.
type orderOption struct {
	name  Capability
	field string // name of a field of Order
	asks  func(Order) bool
}

// orderOptions has a row for each field of an order that asks for more than a plain run.
var orderOptions = []orderOption{
	{"noop", "Mode", func(o Order) bool { return o.Mode == ModeNoop }},
	{"compile", "Mode", func(o Order) bool { return o.Mode == ModeCompile }},
	{"puppet_agent", "Program", func(o Order) bool { return o.Program == ProgramAgent }},
	{"tags", "Tags", func(o Order) bool { return len(o.Tags) > 0 }},
	{"skip_tags", "SkipTags", func(o Order) bool { return len(o.SkipTags) > 0 }},
	{"debug", "Debug", func(o Order) bool { return o.Debug }},
	{"fresh_facts", "FreshFacts", func(o Order) bool { return o.FreshFacts }},
	{"exclusive", "Exclusive", func(o Order) bool { return o.Exclusive }},
	{"enc", "ENC", func(o Order) bool { return o.ENC }},
	{"diff", "Diff", func(o Order) bool { return o.Diff }},
}

// firstRelease lists the capabilities of agents of release 0.2.0. Agents of release 0.2.0 do not report their
// capabilities. The list comes from commit 7a084b3, from Order in event.go and RemoteActions in remote.go. The list
// never changes. A test can build a server with another list (go build -ldflags -X). The server then takes these
// agents for too old.
var firstRelease = "run noop compile puppet_agent tags skip_tags debug fresh_facts exclusive " +
	"remote.disable remote.enable remote.facts remote.last_run_summary remote.resource remote.runonce remote.status"

// Capabilities returns the sorted list of all capabilities of this release. An agent sends this list
// with each claim.
func Capabilities() []Capability {
	all := []Capability{CapabilityRun, CapabilityFacts, CapabilityStatements, CapabilityRotateCA, CapabilityInventory}
	for _, option := range orderOptions {
		all = append(all, option.name)
	}
	for _, action := range RemoteActions {
		all = append(all, action.Needs())
	}
	slices.Sort(all)
	return all
}

// Needs returns the capabilities that an agent needs to carry out the order.
func (o Order) Needs() []Capability {
	needs := []Capability{CapabilityRun}
	for _, option := range orderOptions {
		if option.asks(o) {
			needs = append(needs, option.name)
		}
	}
	return needs
}

// Needs returns the capability that an agent needs to answer a question with this action.
func (a RemoteAction) Needs() Capability { return Capability("remote." + string(a)) }

// Lacking returns the needed capabilities that the agent does not know. If the argument knows is empty, the agent
// is of release 0.2.0 or older, and Lacking uses the list firstRelease.
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

// TooOld returns a message for people about the capabilities that a node's agent lacks, and says what to do. The
// version is empty if the agent did not report its version.
func TooOld(node NodeName, version string, lacks []Capability) string {
	if version == "" {
		version = "of release 0.2.0 or before"
	}
	return fmt.Sprintf("its agent (%s) does not know %s: upgrade tutti on %s", version, JoinWords(lacks), node)
}
