package tutti

import "time"

// Match says that a node is in a group with `where`, or why nobody knows whether it is in the group.
type Match struct {
	Group GroupName `json:"group"`
	// Unknown is the reason why nobody knows. It is empty if the node is in the group.
	Unknown string    `json:"unknown,omitempty"`
	Since   time.Time `json:"since"`
	// Facts is the digest of the facts from which the server found this, as in Held.Blob. It is empty if the condition
	// reads no facts, or if there were none.
	Facts Digest `json:"facts,omitempty"`
}

// MaxUnknown is the largest length of Match.Unknown, in bytes.
const MaxUnknown = 200

// NodeMatched says in which groups with `where` a node is from now on. The node is in no other group with `where`.
type NodeMatched struct {
	Node NodeName `json:"node"`
	// Conditions is the digest of the conditions of all these groups. If the fleet file has other conditions, the event
	// says nothing about them.
	Conditions Digest  `json:"conditions"`
	Matches    []Match `json:"matches,omitempty"` // sorted by group
}

// Kind implements Body.
func (*NodeMatched) Kind() string { return "node.matched" }

// ID implements Body.
func (b *NodeMatched) ID() string { return string(b.Node) }
