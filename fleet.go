package tutti

import (
	"encoding/json"
	"strings"
	"time"
)

// Fleet is a fleet file, checked and resolved.
type Fleet struct {
	Name        string      `json:"name"`
	Environment Environment `json:"environment"`
	Program     Program     `json:"program,omitempty"` // of nodes whose group says nothing
	Groups      []Group     `json:"groups"`
	Grants      []Grant     `json:"grants,omitempty"`
	Plans       []Plan      `json:"plans,omitempty"`
	// Order is explicit order between groups, for converging.
	Order []GroupOrder `json:"order,omitempty"`
	// Reaction keeps the fleet converged; nil: only people start jobs.
	Reaction *Reaction `json:"reaction,omitempty"`
}

// GroupOrder lets the nodes of one group run after those of another one are good.
type GroupOrder struct {
	First GroupName `json:"first"`
	Then  GroupName `json:"then"`
}

// Reaction says how the fleet reacts to changes of data, code and membership.
type Reaction struct {
	// Window is how long changes are collected before nodes run.
	Window time.Duration `json:"window"`
	// Wide is the same for answers that more than a tenth of the fleet reads: its
	// nodes run spread over the second half of it.
	Wide time.Duration `json:"wide"`
	// Safety is after how long a node runs though nothing has changed, spread over
	// the fleet; 0: never.
	Safety time.Duration `json:"safety,omitempty"`
	// Limit is how many runs there are at once, 0: no limit of its own.
	Limit int `json:"limit,omitempty"`
	// AskAbove is how many runs a change may cause before it asks for confirmation.
	AskAbove int            `json:"ask_above"`
	Reads    []ReadReaction `json:"reads,omitempty"` // the first that fits counts
}

// ReadReaction says how the readers of some answers react. One of Type (of a
// collector) and Key (a pattern of values or, with hiera/ before it, hiera keys)
// is set.
type ReadReaction struct {
	Type string       `json:"type,omitempty"`
	Key  string       `json:"key,omitempty"`
	When ReactionTime `json:"when"`
}

// Fits reports whether the rule is about a question. A pattern that begins with
// hiera/ is about hiera keys only, in which `::` parts as `/` does: `hiera/ntp/**` is
// about all parameters of the class ntp. `**` is about everything with a key.
func (r ReadReaction) Fits(q Query) bool {
	switch q.Kind {
	case QueryCollect:
		return r.Type != "" && r.Type == q.Type
	case QueryHiera:
		return r.Key != "" && MatchPattern(hieraParts(r.Key), hieraParts(hieraKeys+q.Key))
	}
	return r.Key != "" && !strings.HasPrefix(r.Key, hieraKeys) && MatchPattern(r.Key, q.Key)
}

// CoveredBy reports whether another rule fits whatever this one fits.
func (r ReadReaction) CoveredBy(other ReadReaction) bool {
	if r.Type != "" || r.Key == "" {
		return r.Type != "" && r.Type == other.Type
	}
	hiera := strings.HasPrefix(r.Key, hieraKeys)
	switch {
	case other.Key == "**":
		return true
	case other.Key == "" || hiera != strings.HasPrefix(other.Key, hieraKeys):
		return false
	case hiera:
		return MatchPattern(hieraParts(other.Key), hieraParts(r.Key))
	}
	return MatchPattern(other.Key, r.Key)
}

// hieraKeys stands before the hiera keys in a pattern.
const hieraKeys = "hiera/"

func hieraParts(key string) string { return strings.ReplaceAll(key, "::", "/") }

// ReactionTime is when a change of an answer makes its readers run.
type ReactionTime string

// The times. Without one of them, it is now, or window where more than a tenth of the
// fleet, and more than 20 nodes, read the answer.
const (
	ReactNow       ReactionTime = "now"       // after Reaction.Window
	ReactWindow    ReactionTime = "window"    // after Reaction.Wide
	ReactScheduled ReactionTime = "scheduled" // with the next run for another reason, or the safety run
)

// The defaults of a Reaction.
const (
	DefaultWindow   = 2 * time.Second
	DefaultWide     = 15 * time.Minute
	DefaultSafety   = 24 * time.Hour
	DefaultAskAbove = 100
)

// Environment says where the Puppet code is. Path is relative to the fleet
// file and means something only to the person who pushes the code. Without a
// Name the fleet has no code: all of its nodes run by ProgramAgent.
type Environment struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
}

// Group is a named set of nodes. Nodes are listed, or fixed by the join token
// of each (then the list grows as nodes join).
type Group struct {
	Name  GroupName  `json:"name"`
	Nodes []NodeName `json:"nodes,omitempty"`
	// Program is that of its nodes, empty: the fleet's.
	Program Program `json:"program,omitempty"`
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
	// Compile: the Puppet Server of these nodes compiles for all others, with the
	// answers that they would get (see Compile). It takes Dangerous.
	Compile bool `json:"compile,omitempty"`
}

// Plan is an ordered graph of steps, as data.
type Plan struct {
	Name  PlanName `json:"name"`
	Steps []Step   `json:"steps"`
	// Exclusive keeps other Puppet runs away from the nodes; nil: it does not.
	Exclusive *Exclusive `json:"exclusive,omitempty"`
}

// Validate checks what everybody relies on who executes a plan: steps of
// different names, each of one kind, whose edges lead to steps and in no circle.
func (p Plan) Validate() error {
	if p.Exclusive != nil {
		if err := p.Exclusive.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "plan %q", string(p.Name))
		}
	}
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
		if p.Exclusive != nil && s.Converge != nil {
			return Errorf(CodeInvalid, "plan %q, step %q: an exclusive plan has no converge steps, whose nodes nobody knows before", string(p.Name), string(s.Name))
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
