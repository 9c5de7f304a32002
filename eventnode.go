package tutti

import "time"

// nodeEvents are the kinds of events of nodes, and of the tokens by which they join.
var nodeEvents = []eventKind{
	{func() Body { return new(TokenCreated) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(TokenRevoked) }, ScopeNone, TrailAlways, KeepOwn},
	{func() Body { return new(NodeEnrolled) }, ScopeNode, TrailAlways, KeepOwn},
	{func() Body { return new(NodeReplaceable) }, ScopeNode, TrailAlways, KeepOwn},
	{func() Body { return new(NodeRemoved) }, ScopeNode, TrailAlways, KeepOwn},
	{func() Body { return new(NodeSetBack) }, ScopeNode, TrailAlways, KeepLast},
	{func() Body { return new(NodeConnected) }, ScopeNode, TrailOperators, KeepLast},
	{func() Body { return new(NodeConflicted) }, ScopeNode, TrailAlways, KeepLast},
	{func() Body { return new(NodeKept) }, ScopeNode, TrailAlways, KeepLast},
	{func() Body { return new(NodeFacts) }, ScopeNode, TrailOperators, KeepLast},
	{func() Body { return new(NodeBoxed) }, ScopeNode, TrailAlways, KeepLast},
	{func() Body { return new(NodePinned) }, ScopeNode, TrailOperators, KeepLast},
	{func() Body { return new(NodeTrusts) }, ScopeNode, TrailOperators, KeepLast},
}

// TokenCreated allows one key to join. Hash is of the token's secret.
type TokenCreated struct {
	Token   TokenID     `json:"token"`
	Hash    Digest      `json:"hash"`
	Name    string      `json:"name"` // pattern
	Groups  []GroupName `json:"groups,omitempty"`
	Expires time.Time   `json:"expires"`
}

// Kind implements Body.
func (*TokenCreated) Kind() string { return "token.created" }

// ID implements Body.
func (b *TokenCreated) ID() string { return string(b.Token) }

// TokenRevoked ends a token that nobody used.
type TokenRevoked struct {
	Token TokenID `json:"token"`
}

// Kind implements Body.
func (*TokenRevoked) Kind() string { return "token.revoked" }

// ID implements Body.
func (b *TokenRevoked) ID() string { return string(b.Token) }

// NodeEnrolled binds a name and a token to a key.
type NodeEnrolled struct {
	Node   NodeName    `json:"node"`
	Key    NodeKey     `json:"key"`
	BoxKey string      `json:"box_key,omitempty"` // X25519, base64
	Token  TokenID     `json:"token"`
	Groups []GroupName `json:"groups,omitempty"`
}

// Kind implements Body.
func (*NodeEnrolled) Kind() string { return "node.enrolled" }

// ID implements Body.
func (b *NodeEnrolled) ID() string { return string(b.Node) }

// NodeBoxed gives a node another key for its secrets, which it has made itself.
type NodeBoxed struct {
	Node   NodeName `json:"node"`
	BoxKey string   `json:"box_key"` // X25519, base64
}

// Kind implements Body.
func (*NodeBoxed) Kind() string { return "node.boxed" }

// ID implements Body.
func (b *NodeBoxed) ID() string { return string(b.Node) }

// NodeReplaceable allows the next token that fits to take over the name.
type NodeReplaceable struct {
	Node NodeName `json:"node"`
}

// Kind implements Body.
func (*NodeReplaceable) Kind() string { return "node.replaceable" }

// ID implements Body.
func (b *NodeReplaceable) ID() string { return string(b.Node) }

// NodeRemoved withdraws a node's identity and everything it published.
type NodeRemoved struct {
	Node NodeName `json:"node"`
	// Replaced: the next event enrols another machine under the name. What is said of
	// the name, like a pause, stays.
	Replaced bool `json:"replaced,omitempty"`
	// Keeps: the publications of the old machine stay until the first run of the new one.
	Keeps bool `json:"keeps,omitempty"`
}

// Kind implements Body.
func (*NodeRemoved) Kind() string { return "node.removed" }

// ID implements Body.
func (b *NodeRemoved) ID() string { return string(b.Node) }

// NodeSetBack says that a node does not know of a run that the log has, or the log not of
// one that the node has begun: one of them was put back to an earlier state. The node may
// have lost what it was known to have.
type NodeSetBack struct {
	Node NodeName `json:"node"`
	// Run is the run that the node does not know, empty: it is the log that does not know
	// the one that the node has begun last.
	Run   RunID `json:"run,omitempty"`
	Begun Fence `json:"begun"` // what the node has begun last
	// During: the node knows that it has begun the run, and not how the run ended.
	During bool `json:"during,omitempty"`
	// Moved: the node knows the run, and is another machine since, or was installed again.
	Moved bool `json:"moved,omitempty"`
}

// Kind implements Body.
func (*NodeSetBack) Kind() string { return "node.setback" }

// ID implements Body.
func (b *NodeSetBack) ID() string { return string(b.Node) }

// NodeFacts is a node's word on the facts that it has had since its last run (ADR 0019).
type NodeFacts struct {
	Node NodeName `json:"node"`
	FactsSeen
	// Row is how many runs in a row, up to Run, were wanted by facts alone, and Vain how many of these
	// changed nothing.
	Row  int `json:"row,omitempty"`
	Vain int `json:"vain,omitempty"`
}

// Kind implements Body.
func (*NodeFacts) Kind() string { return "node.facts" }

// ID implements Body.
func (b *NodeFacts) ID() string { return string(b.Node) }

// NodeTrusts is a node's word on the last statement about code keys that it follows.
type NodeTrusts struct {
	Node    NodeName `json:"node"`
	Counter uint64   `json:"counter"`
}

// Kind implements Body.
func (*NodeTrusts) Kind() string { return "node.trusts" }

// ID implements Body.
func (b *NodeTrusts) ID() string { return string(b.Node) }

// NodeConnected says which ticket a node has from now on.
type NodeConnected struct {
	Node   NodeName `json:"node"`
	Ticket Digest   `json:"ticket"`
	Boot   string   `json:"boot,omitempty"`
	// Rivals are tickets that only another machine can have: this one came with an older
	// one than them. Heard again, they show two machines.
	Rivals []Digest `json:"rivals,omitempty"`
	// Out are tickets of machines that are the node no more; see NodeKept.
	Out []Digest `json:"out,omitempty"`
	// Machine is that of the Hello, empty: nothing is known.
	Machine Digest `json:"machine,omitempty"`
}

// Kind implements Body.
func (*NodeConnected) Kind() string { return "node.connected" }

// ID implements Body.
func (b *NodeConnected) ID() string { return string(b.Node) }

// NodeConflicted says that two machines are a node. Nothing is taken from either of them.
type NodeConflicted struct {
	Node NodeName `json:"node"`
	Why  string   `json:"why"`
}

// Kind implements Body.
func (*NodeConflicted) Kind() string { return "node.conflicted" }

// ID implements Body.
func (b *NodeConflicted) ID() string { return string(b.Node) }

// NodeKept ends that: the machine with the ticket is the node. Without a ticket the next machine
// is that speaks with the node's key.
type NodeKept struct {
	Node   NodeName `json:"node"`
	Ticket Digest   `json:"ticket,omitempty"`
	Out    []Digest `json:"out,omitempty"` // tickets of the others
}

// Kind implements Body.
func (*NodeKept) Kind() string { return "node.kept" }

// ID implements Body.
func (b *NodeKept) ID() string { return string(b.Node) }
