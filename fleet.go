package tutti

import (
	"cmp"
	"slices"
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
	Access      []Access    `json:"access,omitempty"` // none: each operator may do everything
	Plans       []Plan      `json:"plans,omitempty"`
	// Order is explicit order between groups, for converging.
	Order []GroupOrder `json:"order,omitempty"`
	// Reaction keeps the fleet converged; nil: only people start jobs.
	Reaction *Reaction `json:"reaction,omitempty"`
	// KeepReplaced: what a replaced machine had published stays until the first run of
	// the new one. Else it is withdrawn when the new one joins.
	KeepReplaced bool `json:"keep_replaced,omitempty"`
	// VolatileFacts are names of facts, besides those that the module lists, that say nothing
	// when they change.
	VolatileFacts []string `json:"volatile_facts,omitempty"`
	// SafetyWhenAway is after how long without its server a node makes a safety run by itself, unless its
	// group says something else; 0: the default, Never: not at all.
	SafetyWhenAway time.Duration `json:"safety_when_away,omitempty"`
	// Secrets is nil in a fleet that has none.
	Secrets *SecretRules `json:"secrets,omitempty"`
}

// Never stands for a duration that does not end.
const Never time.Duration = -1

// DefaultSafetyWhenAway is that of a fleet that reacts. In another one only people start runs.
const DefaultSafetyWhenAway = 12 * time.Hour

// AloneOf says what a node does while its server is away. If the node is in several groups, the longest
// wait counts.
func (f Fleet) AloneOf(groups []GroupName) Alone {
	longest, said := time.Duration(0), GroupName("")
	for _, g := range f.Groups {
		d := g.SafetyWhenAway
		if d != 0 && slices.Contains(groups, g.Name) && longest != Never && (d == Never || d > longest) {
			longest, said = d, g.Name
		}
	}
	switch {
	case longest == Never:
		return Alone{Why: "the fleet file says never, for group " + string(said)}
	case longest > 0:
		return Alone{Safety: longest, Why: "the fleet file says so, for group " + string(said)}
	case f.SafetyWhenAway == Never:
		return Alone{Why: "the fleet file says never"}
	case f.SafetyWhenAway > 0:
		return Alone{Safety: f.SafetyWhenAway, Why: "the fleet file says so"}
	case f.Reaction == nil:
		return Alone{Why: "only people start runs in this fleet: its fleet file does not say reactive"}
	}
	return Alone{Safety: DefaultSafetyWhenAway, Why: "the default"}
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
	// Bound is how often a node reacts to one question whose answer other runs change; zero: DefaultBound.
	Bound ReactionBound `json:"bound,omitzero"`
	// Code is how nodes react to new code; zero: as to any other change.
	Code CodeReaction `json:"code,omitzero"`
}

// CodeReaction says which nodes run by themselves with code that was pushed. At most one field is set.
type CodeReaction struct {
	Confirm bool `json:"confirm,omitempty"` // none, until the code is released
	Canary  int  `json:"canary,omitempty"`  // so many, and when these are good all others; 0: all at once
}

// Holds reports whether code waits for its release.
func (c CodeReaction) Holds() bool { return c.Confirm || c.Canary > 0 }

// MaxCanary bounds CodeReaction.Canary.
const MaxCanary = 1000

// ReactionBound is a number of reactions within some time.
type ReactionBound struct {
	Times int           `json:"times"`
	Per   time.Duration `json:"per"`
}

// The limits of a ReactionBound.
const (
	MaxReactions    = 100
	MaxReactionTime = 24 * time.Hour
)

// DefaultBound is that of a fleet file that says nothing.
var DefaultBound = ReactionBound{Times: 6, Per: time.Hour}

// Bounds returns the bound, or its default.
func (r Reaction) Bounds() ReactionBound { return cmp.Or(r.Bound, DefaultBound) }

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
	default:
		return r.Key != "" && !strings.HasPrefix(r.Key, hieraKeys) && MatchPattern(r.Key, q.Key)
	}
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
	// Serial: converging runs its nodes one after the other, each good before the next.
	Serial bool `json:"serial,omitempty"`
	// SafetyWhenAway is that of its nodes; 0: the fleet's.
	SafetyWhenAway time.Duration `json:"safety_when_away,omitempty"`
}

// Joined reports whether the join token of each node decides if it is in the group.
func (g Group) Joined() bool { return len(g.Nodes) == 0 }

// Grant lets the nodes of a group publish and read more than a node may without
// one. Write and Read hold key patterns (see ValidatePattern), Types says which
// resources they may export; a node may read what it may write. Dangerous admits
// what gives root on other nodes (see ExportGrant.Dangers and DangerousPattern).
type Grant struct {
	To    GroupName     `json:"to"`
	Write []string      `json:"write,omitempty"`
	Read  []string      `json:"read,omitempty"`
	Types []ExportGrant `json:"types,omitempty"`
	// Exports are the types that a fleet file of before 0.3.0 granted. They keep the
	// meaning of that time (see OldDangerousExport): no fleet file is read into them.
	Exports   []string `json:"exports,omitempty"`
	Dangerous bool     `json:"dangerous,omitempty"`
	// Compile: the Puppet Server of these nodes compiles for all others, with the
	// answers that they would get (see Compile). It takes Dangerous.
	Compile bool `json:"compile,omitempty"`
}
