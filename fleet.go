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
	Environment Environment `json:"environment"` // Environment is for nodes whose groups name no environment.
	// Environments are other environments whose code `tutti code push` sends, sorted by name.
	Environments []Environment `json:"environments,omitempty"`
	Program      Program       `json:"program,omitempty"` // Program is for nodes whose group has no program.
	Groups       []Group       `json:"groups"`
	Grants       []Grant       `json:"grants,omitempty"`
	// Access lets operators do something. If Access is empty, each operator may do everything.
	Access []Access `json:"access,omitempty"`
	Plans  []Plan   `json:"plans,omitempty"`
	// Order is the explicit order between groups, for converging.
	Order []GroupOrder `json:"order,omitempty"`
	// Reaction says how the server keeps the fleet converged. If Reaction is nil, only people start jobs.
	Reaction *Reaction `json:"reaction,omitempty"`
	// KeepReplaced is true if the publications of a replaced machine stay until the first run of the
	// new machine. If KeepReplaced is false, the server withdraws the publications when the new
	// machine joins.
	KeepReplaced bool `json:"keep_replaced,omitempty"`
	// VolatileFacts are names of facts. A change of such a fact does not cause a run. The module has its own list of
	// volatile facts.
	VolatileFacts []string `json:"volatile_facts,omitempty"`
	// If the server does not answer a node for the time SafetyWhenAway, the node makes a safety run. A
	// value in the node's group counts more than this value. If the value is 0, the default counts. If
	// the value is Never, nodes make no safety runs.
	SafetyWhenAway time.Duration `json:"safety_when_away,omitempty"`
	// RunsEvery is the time between two Puppet runs of observed nodes, unless their group has another value. With a
	// RunsEvery of 0, the node's puppet.conf says how often Puppet runs.
	RunsEvery time.Duration `json:"runs_every,omitempty"`
	// Join has the rules by which machines join with their Puppet certificate. The first rule that fits decides.
	Join []JoinRule `json:"join,omitempty"`
	// Inventory says what the server holds about each node for queries.
	Inventory InventoryRules `json:"inventory,omitzero"`
	// Secrets is nil if the fleet has no secrets.
	Secrets *SecretRules `json:"secrets,omitempty"`
}

// Never stands for an endless duration.
const Never time.Duration = -1

// DefaultSafetyWhenAway is the default of a fleet with a reaction. In a fleet without a reaction
// only people start runs.
const DefaultSafetyWhenAway = 12 * time.Hour

// AloneOf says what a node does while its server is away. If the node is in several groups, the longest SafetyWhenAway
// counts.
func (f Fleet) AloneOf(groups []GroupName) Alone {
	if why := f.WhyObserved(groups); why != "" {
		return Alone{Why: why, Observed: true}
	}
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
		return Alone{Why: "only people start runs in this fleet: its fleet file does not say `reactive: true`"}
	}
	return Alone{Safety: DefaultSafetyWhenAway, Why: "the default"}
}

// GroupOrder says that the nodes of one group run only after the nodes of another group are good.
type GroupOrder struct {
	First GroupName `json:"first"`
	Then  GroupName `json:"then"`
}

// Reaction says how the fleet reacts to changes of data, code and membership.
type Reaction struct {
	// Window is the time during which the server collects changes before nodes run.
	Window time.Duration `json:"window"`
	// Wide replaces Window if more than a tenth of the fleet reads an answer. The runs of the
	// reading nodes are spread over the second half of Wide.
	Wide time.Duration `json:"wide"`
	// Safety is the time after which a node runs even if nothing has changed. The safety runs are
	// spread over the fleet. With 0 there are no safety runs.
	Safety time.Duration `json:"safety,omitempty"`
	// Limit is the largest number of runs at the same time. With 0 the reaction has no separate limit.
	Limit int `json:"limit,omitempty"`
	// AskAbove is the largest number of runs that a change may cause without a confirmation.
	AskAbove int            `json:"ask_above"`
	Reads    []ReadReaction `json:"reads,omitempty"` // Reads are rules for readers. The first rule that fits decides.
	// Bound limits how often a node reacts to one question if other runs change the answer. The zero value means
	// DefaultBound.
	Bound ReactionBound `json:"bound,omitzero"`
	// Code says how nodes react to new code. With the zero value nodes react to code as to any other
	// change.
	Code CodeReaction `json:"code,omitzero"`
}

// CodeReaction says which nodes run pushed code by themselves. At most one field is set.
type CodeReaction struct {
	// Confirm is true if no node runs the code before an operator releases the code.
	Confirm bool `json:"confirm,omitempty"`
	// Canary is the number of nodes that run first. The other nodes run when these nodes are good. With a
	// Canary of 0 all nodes run at once.
	Canary int `json:"canary,omitempty"`
}

// Holds reports whether new code waits for its release.
func (c CodeReaction) Holds() bool { return c.Confirm || c.Canary > 0 }

// MaxCanary bounds CodeReaction.Canary.
const MaxCanary = 1000

// ReactionBound is a number of reactions within some time.
type ReactionBound struct {
	Times int           `json:"times"`
	Per   time.Duration `json:"per"`
}

// These are the limits of a ReactionBound.
const (
	MaxReactions    = 100
	MaxReactionTime = 24 * time.Hour
)

// DefaultBound is the bound if the fleet file does not set one.
var DefaultBound = ReactionBound{Times: 6, Per: time.Hour}

// Bounds returns the bound of the reaction, or the default.
func (r Reaction) Bounds() ReactionBound { return cmp.Or(r.Bound, DefaultBound) }

// ReadReaction says how the readers of some answers react. Exactly one of Type and Key is set. Type is the type of a
// collector. A Key that begins with hiera/ is a pattern of hiera keys. Any other Key is a pattern of the keys of
// values.
type ReadReaction struct {
	Type string       `json:"type,omitempty"`
	Key  string       `json:"key,omitempty"`
	When ReactionTime `json:"when"`
}

// Fits reports whether the rule covers a question. A pattern that begins with hiera/ covers hiera
// keys only. In hiera keys, `::` separates parts as `/` does: `hiera/ntp/**` covers all parameters
// of the class ntp. `**` covers every question that has a key.
func (r ReadReaction) Fits(q Query) bool {
	switch q.Kind {
	case QueryCollect:
		return r.Type != "" && r.Type == q.Type
	case QueryHiera:
		return r.Key != "" && MatchPattern(hieraParts(r.Key), hieraParts(hieraKeys+q.Key))
	case QueryGroups, QueryENC: // have no key
		return false
	default:
		return r.Key != "" && !strings.HasPrefix(r.Key, hieraKeys) && MatchPattern(r.Key, q.Key)
	}
}

// CoveredBy reports whether another rule fits all questions that this rule fits.
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

// hieraKeys is the prefix of a pattern for hiera keys.
const hieraKeys = "hiera/"

func hieraParts(key string) string { return strings.ReplaceAll(key, "::", "/") }

// ReactionTime is when a change of an answer makes its readers run.
type ReactionTime string

// The times. If no rule fits, the time is ReactNow. But if more than a tenth of the fleet and more than 20 nodes read
// the answer, the time is ReactWindow.
const (
	ReactNow    ReactionTime = "now"    // after Reaction.Window
	ReactWindow ReactionTime = "window" // after Reaction.Wide
	// the change alone starts no run; the readers get the new answer in their next run for
	// another reason, or in their safety run
	ReactScheduled ReactionTime = "scheduled"
)

// These are the defaults of a Reaction.
const (
	DefaultWindow   = 2 * time.Second
	DefaultWide     = 15 * time.Minute
	DefaultSafety   = 24 * time.Hour
	DefaultAskAbove = 100
)

// Environment says where the Puppet code is. Path is relative to the fleet file, and only the command that pushes the
// code uses it. If Fleet.Environment has no Name, nodes whose groups name no environment run with ProgramAgent.
type Environment struct {
	Name string `json:"name"`
	Path string `json:"path,omitempty"`
	// ENC is true if the ENC of the server may name the environment of nodes whose groups name none. Only the fleet's own
	// environment may have this field.
	ENC bool `json:"enc,omitempty"`
}

// Group is a named set of nodes. Nodes lists the nodes of the group. If the list is empty, a node's join token decides
// whether the node is in the group, and the group grows when nodes join.
type Group struct {
	Name  GroupName  `json:"name"`
	Nodes []NodeName `json:"nodes,omitempty"`
	// Trusted is a condition in CEL over the Puppet certificate of a node. If it is set, it decides which nodes are in the
	// group, and Nodes is empty.
	Trusted string `json:"trusted,omitempty"`
	// Where is a condition in CEL over facts, classes of the ENC and the Puppet certificate of a node (ADR 0041). If it is
	// set, it decides which nodes are in the group, and Nodes is empty. A node chooses its own facts, so such a group can
	// only be a target: it gives nothing to its nodes.
	Where string `json:"where,omitempty"`
	// Program is the program of the group's nodes. If Program is empty, the fleet's program counts.
	Program Program `json:"program,omitempty"`
	// Environment is the environment of the group's nodes (see Fleet.EnvironmentOf).
	Environment string `json:"environment,omitempty"`
	// Serial is true if converging runs the group's nodes one after the other. Each node must be good
	// before the next node runs.
	Serial bool `json:"serial,omitempty"`
	// SafetyWhenAway is the value for the group's nodes. If SafetyWhenAway is 0, the fleet's value
	// counts.
	SafetyWhenAway time.Duration `json:"safety_when_away,omitempty"`
	// RunsEvery is the value for the group's observed nodes. If RunsEvery is 0, the fleet's value counts.
	RunsEvery time.Duration `json:"runs_every,omitempty"`
	// If the server hears nothing of a node of the group for longer than RemoveAfter, the server removes the node. With 0
	// no node is removed. Only a group of joined nodes has this value. If the node is in several such groups, the longest
	// RemoveAfter counts.
	RemoveAfter time.Duration `json:"remove_after,omitempty"`
}

// Joined reports whether the way in which a node joined decides whether the node is in the group: by its token, by a rule,
// by an approval or by its certificate. It also reports true for a group with Where, which lists no nodes.
func (g Group) Joined() bool { return len(g.Nodes) == 0 }

// Named reports whether tokens, rules and approvals may name the group.
func (g Group) Named() bool { return g.Joined() && g.Trusted == "" && g.Where == "" }

// Gives reports whether the group may stand where the operators give something to nodes, or where a compile depends on it.
func (g Group) Gives() bool { return g.Where == "" }

// GroupOf returns the group with this name, or nil.
func (f Fleet) GroupOf(name GroupName) *Group {
	for i := range f.Groups {
		if f.Groups[i].Name == name {
			return &f.Groups[i]
		}
	}
	return nil
}

// Grant allows the nodes of a group to publish and read data that nodes without a grant may not
// publish or read. Write and Read are key patterns (see ValidatePattern). Types says which
// resources the nodes may export. A node may read each key that it may write. Dangerous allows
// rights that give root on other nodes (see ExportGrant.Dangers and DangerousPattern).
type Grant struct {
	To    GroupName     `json:"to"`
	Write []string      `json:"write,omitempty"`
	Read  []string      `json:"read,omitempty"`
	Types []ExportGrant `json:"types,omitempty"`
	// Exports are the types that a fleet file before 0.3.0 granted. The types keep their meaning of
	// that time (see OldDangerousExport). A fleet file of this release never sets Exports.
	Exports   []string `json:"exports,omitempty"`
	Dangerous bool     `json:"dangerous,omitempty"`
	// Compile is true if the Puppet Server of these nodes compiles for all other nodes. The Puppet
	// Server gets the answers that the other nodes would get (see Compile). A grant with Compile also
	// needs Dangerous.
	Compile bool `json:"compile,omitempty"`
}
