package tutti

import "time"

// nodeEvents are the kinds of events about nodes and their join tokens.
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
	{func() Body { return new(NodeClassified) }, ScopeNode, TrailOperators, KeepOwn},
	{func() Body { return new(NodeMatched) }, ScopeNode, TrailOperators, KeepLast},
}

// TokenCreated creates a token with which one key may join, or several keys. Hash is the digest of the token's
// secret.
type TokenCreated struct {
	Token   TokenID     `json:"token"`
	Hash    Digest      `json:"hash"`
	Name    string      `json:"name"` // pattern
	Groups  []GroupName `json:"groups,omitempty"`
	Expires time.Time   `json:"expires"`
	Uses    int         `json:"uses,omitempty"` // how many keys may join with the token; 0 means 1
}

// Kind implements Body.
func (*TokenCreated) Kind() string { return "token.created" }

// ID implements Body.
func (b *TokenCreated) ID() string { return string(b.Token) }

// TokenRevoked ends a token. Machines that have joined with the token stay.
type TokenRevoked struct {
	Token TokenID `json:"token"`
}

// Kind implements Body.
func (*TokenRevoked) Kind() string { return "token.revoked" }

// ID implements Body.
func (b *TokenRevoked) ID() string { return string(b.Token) }

// NodeEnrolled connects a name with a key. The proof was a token or a Puppet certificate.
type NodeEnrolled struct {
	Node   NodeName    `json:"node"`
	Key    NodeKey     `json:"key"`
	BoxKey string      `json:"box_key,omitempty"` // X25519, base64
	Token  TokenID     `json:"token"`             // empty if the node joined with its Puppet certificate
	Groups []GroupName `json:"groups,omitempty"`
	// Certificate is nil if the node joined with a token.
	Certificate *NodeCertificate `json:"certificate,omitempty"`
}

// Kind implements Body.
func (*NodeEnrolled) Kind() string { return "node.enrolled" }

// ID implements Body.
func (b *NodeEnrolled) ID() string { return string(b.Node) }

// NodeBoxed replaces a node's key for secrets. The node has made the new key for its secrets itself.
type NodeBoxed struct {
	Node   NodeName `json:"node"`
	BoxKey string   `json:"box_key"` // X25519, base64
}

// Kind implements Body.
func (*NodeBoxed) Kind() string { return "node.boxed" }

// ID implements Body.
func (b *NodeBoxed) ID() string { return string(b.Node) }

// NodeReplaceable allows a new machine to take over the name with the next matching token.
type NodeReplaceable struct {
	Node NodeName `json:"node"`
}

// Kind implements Body.
func (*NodeReplaceable) Kind() string { return "node.replaceable" }

// ID implements Body.
func (b *NodeReplaceable) ID() string { return string(b.Node) }

// NodeRemoved removes a node's identity and everything that the node published.
type NodeRemoved struct {
	Node NodeName `json:"node"`
	// Replaced is true if the next event enrols another machine under the same name. Settings of the
	// name, for example a pause, stay after the removal.
	Replaced bool `json:"replaced,omitempty"`
	// Keeps is true if the publications of the old machine stay until the first run of the new
	// machine.
	Keeps bool `json:"keeps,omitempty"`
}

// Kind implements Body.
func (*NodeRemoved) Kind() string { return "node.removed" }

// ID implements Body.
func (b *NodeRemoved) ID() string { return string(b.Node) }

// NodeSetBack says that node and log disagree. Either the node does not know a run of the log, or
// the log does not know a run of the node. Either the node or the log was restored to an earlier
// state. The node may have lost the state that its earlier runs left.
type NodeSetBack struct {
	Node NodeName `json:"node"`
	// Run is the run that the node does not know. Run is empty if the log does not know the last run
	// of the node.
	Run   RunID `json:"run,omitempty"`
	Begun Fence `json:"begun"` // Begun is the fence of the last run that the node has begun.
	// During is true if the node knows that it has begun the run, but not how the run ended.
	During bool `json:"during,omitempty"`
	// Moved is true if the node knows the run, but has since moved to another machine or was installed again.
	Moved bool `json:"moved,omitempty"`
}

// Kind implements Body.
func (*NodeSetBack) Kind() string { return "node.setback" }

// ID implements Body.
func (b *NodeSetBack) ID() string { return string(b.Node) }

// NodeFacts is a node's report about its facts since its last run (ADR 0019).
type NodeFacts struct {
	Node NodeName `json:"node"`
	FactsSeen
	// Row is the number of consecutive runs, up to and including Run, that the server wanted only because of changed
	// facts. Vain is the number of those runs that changed nothing.
	Row  int `json:"row,omitempty"`
	Vain int `json:"vain,omitempty"`
}

// Kind implements Body.
func (*NodeFacts) Kind() string { return "node.facts" }

// ID implements Body.
func (b *NodeFacts) ID() string { return string(b.Node) }

// NodeTrusts is a node's report about the last statement on code keys that the node has accepted.
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
	// If the machine connected with an old ticket, Rivals lists the newer tickets of the node. This
	// machine never got them, so only another machine can have them. If the server hears a rival
	// ticket again, there are two machines with one key.
	Rivals []Digest `json:"rivals,omitempty"`
	// Out lists the tickets of machines that are no longer the node; see NodeKept.
	Out []Digest `json:"out,omitempty"`
	// Machine is the machine's digest from the Hello. Machine is empty if the agent did not report a
	// digest.
	Machine Digest `json:"machine,omitempty"`
}

// Kind implements Body.
func (*NodeConnected) Kind() string { return "node.connected" }

// ID implements Body.
func (b *NodeConnected) ID() string { return string(b.Node) }

// NodeConflicted says that two machines use the identity of one node. The server then accepts nothing from either
// machine.
type NodeConflicted struct {
	Node NodeName `json:"node"`
	Why  string   `json:"why"`
}

// Kind implements Body.
func (*NodeConflicted) Kind() string { return "node.conflicted" }

// ID implements Body.
func (b *NodeConflicted) ID() string { return string(b.Node) }

// NodeKept ends a conflict. The machine with this ticket is the node. If Ticket is empty, the next
// machine that connects with the node's key is the node.
type NodeKept struct {
	Node   NodeName `json:"node"`
	Ticket Digest   `json:"ticket,omitempty"`
	Out    []Digest `json:"out,omitempty"` // the tickets of the other machines
}

// Kind implements Body.
func (*NodeKept) Kind() string { return "node.kept" }

// ID implements Body.
func (b *NodeKept) ID() string { return string(b.Node) }
