package tutti

import (
	"encoding/json"
	"time"
)

// Fleet is a fleet file, checked and resolved.
type Fleet struct {
	Name        string      `json:"name"`
	Environment Environment `json:"environment"`
	Groups      []Group     `json:"groups"`
	Grants      []Grant     `json:"grants,omitempty"`
	Plans       []Plan      `json:"plans,omitempty"`
}

// Environment says where the Puppet code is. Path is relative to the fleet
// file and means something only to the person who pushes the code.
type Environment struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
}

// Group is a named set of nodes. Nodes are listed, or fixed by the join token
// of each (then the list grows as nodes join).
type Group struct {
	Name  GroupName  `json:"name"`
	Nodes []NodeName `json:"nodes,omitempty"`
}

// Joined reports whether the join token of each node fixes who is in the group.
func (g Group) Joined() bool { return len(g.Nodes) == 0 }

// Grant lets the nodes of a group publish and read more than a node may without
// one. Write and Read hold key patterns (see ValidatePattern), Exports names
// resource types; what a node may write it may read. Dangerous admits what means
// root on other nodes (see DangerousExport and DangerousPattern).
type Grant struct {
	To        GroupName `json:"to"`
	Write     []string  `json:"write,omitempty"`
	Read      []string  `json:"read,omitempty"`
	Exports   []string  `json:"exports,omitempty"`
	Dangerous bool      `json:"dangerous,omitempty"`
}

// Plan is an ordered graph of steps, as data.
type Plan struct {
	Name  PlanName `json:"name"`
	Steps []Step   `json:"steps"`
}

// Validate checks what everybody relies on who executes a plan: steps of
// different names, each of one kind, whose edges lead to steps and in no circle.
func (p Plan) Validate() error {
	waits := map[StepName]int{}
	after := map[StepName][]StepName{}
	for _, s := range p.Steps {
		if _, twice := waits[s.Name]; twice {
			return Errorf(CodeInvalid, "plan %q: two steps are called %q", string(p.Name), string(s.Name))
		}
		kinds := 0
		for _, is := range []bool{s.Run != nil, s.Wait != nil, s.Converge != nil} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			return Errorf(CodeInvalid, "plan %q, step %q: it has to be one of run, converge and wait", string(p.Name), string(s.Name))
		}
		waits[s.Name] = len(s.After)
		for _, earlier := range s.After {
			after[earlier] = append(after[earlier], s.Name)
		}
	}
	for earlier := range after {
		if _, ok := waits[earlier]; !ok {
			return Errorf(CodeInvalid, "plan %q: a step follows %q, which is none", string(p.Name), string(earlier))
		}
	}
	var ready []StepName
	for name, n := range waits {
		if n == 0 {
			ready = append(ready, name)
		}
	}
	ended := 0
	for ; ended < len(ready); ended++ { // it grows
		for _, next := range after[ready[ended]] {
			if waits[next]--; waits[next] == 0 {
				ready = append(ready, next)
			}
		}
	}
	if ended < len(p.Steps) {
		return Errorf(CodeInvalid, "plan %q: its steps wait for each other in a circle", string(p.Name))
	}
	return nil
}

// Step is one node of a plan: exactly one of Run, Wait and Converge is set. After names
// the steps it waits for, resolved: a step without an edge in the file follows
// the one before it.
type Step struct {
	Name  StepName   `json:"name"`
	After []StepName `json:"after,omitempty"`
	// PerNode makes a node wait for the same node of the earlier steps only.
	PerNode  bool          `json:"per_node,omitempty"`
	Timeout  time.Duration `json:"timeout"`
	Run      *RunStep      `json:"run,omitempty"`
	Wait     *WaitStep     `json:"wait,omitempty"`
	Converge *ConvergeStep `json:"converge,omitempty"`
}

// RunStep runs Puppet on every node of its target, at most Limit at once
// (0: no limit of its own).
type RunStep struct {
	Target string   `json:"target"` // a group, or a node
	Accept []Accept `json:"accept,omitempty"`
	Limit  int      `json:"limit,omitempty"`
}

// ConvergeStep runs Puppet where and until it is needed: on the nodes of its target
// that are not good, in the order that their reads and publications ask for. Timeout
// of the step is that of each run.
type ConvergeStep struct {
	Target string `json:"target,omitempty"` // a group, or a node; empty: the whole fleet
	Limit  int    `json:"limit,omitempty"`  // runs at once, 0: no limit of its own
	// MaxFailed is after how many failed nodes nothing more begins, 0: never.
	MaxFailed int `json:"max_failed,omitempty"`
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

// WaitStep waits for something outside Puppet; exactly one of HTTP, TCP and
// Value is set. The server asks.
type WaitStep struct {
	HTTP   string          `json:"http,omitempty"`   // a URL that answers 2xx
	TCP    string          `json:"tcp,omitempty"`    // host:port that accepts a connection
	Value  string          `json:"value,omitempty"`  // a key that has a value,
	Equals json.RawMessage `json:"equals,omitempty"` // this one if given
}

// Subject names what the step waits for, for people.
func (w WaitStep) Subject() string {
	switch {
	case w.HTTP != "":
		return w.HTTP
	case w.TCP != "":
		return "tcp " + w.TCP
	case len(w.Equals) > 0:
		return "value " + w.Value + " = " + string(w.Equals)
	}
	return "value " + w.Value
}
