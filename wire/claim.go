package wire

import (
	"encoding/json"

	"github.com/tutti-project/tutti"
)

// Claim asks for the node's next run. It says what the agent knows, so that it is given
// no order that it would misread.
type Claim struct {
	Version string             `json:"version,omitempty"` // of the agent
	Knows   []tutti.Capability `json:"knows,omitempty"`   // Capabilities of its release; none: release 0.2.0 or before
	// Begun is the fence of the last order that the node has begun, and the zero fence before the
	// first; nil: the agent keeps no fence. A node whose disk was set back tells an older fence.
	Begun *tutti.Fence `json:"begun,omitempty"`
	// Seen is the position of the server's log when this node last heard of it.
	Seen tutti.Position `json:"seen,omitzero"`
	// Trusts is the counter of the last statement about code keys that the node follows; nil: the agent
	// follows none.
	Trusts *uint64 `json:"trusts,omitempty"`
	// Operators is the counter of the list of operators that the node has; nil: the agent knows none.
	Operators *uint64 `json:"operators,omitempty"`
}

// Claimed carries the order, if there is one. The server gives the same order again
// until it has the result. A node that has the run's marker follows the run, and
// starts nothing twice.
type Claimed struct {
	Order  *tutti.Order `json:"order,omitempty"`
	Expect Expectation  `json:"expect,omitempty"` // besides this order
	// Fence is the order's. A node begins no order whose fence is not above that of the
	// last one that it has begun. Zero: the server is of release 0.2.0 or before.
	Fence    tutti.Fence    `json:"fence,omitzero"`
	Position tutti.Position `json:"position,omitzero"` // of the server
	// Alone is what the node does while its server is away; nil: nothing, as with a server of
	// release 0.2.0 or before.
	Alone *tutti.Alone `json:"alone,omitempty"`
	// Trust are the statements about code keys that the node has not followed yet, in order.
	Trust []tutti.Statement `json:"trust,omitempty"`
	// Operators is the list of operators who sign actions, if the node has an older one.
	Operators *tutti.Statement `json:"operators,omitempty"`
	// Unknown says what this release does not know in the order, which then has its Run
	// and its Node alone. No agent may carry it out.
	Unknown error `json:"-"`
}

// Expectation says what may follow on a node.
type Expectation string

// Expectations.
const (
	ExpectNothing Expectation = ""
	ExpectChange  Expectation = "change" // a run, if something changes: the fleet reacts
	ExpectTurn    Expectation = "turn"   // a run, when the node's turn comes in a job that goes on
)

// UnmarshalJSON reads an answer to a claim. Fields beside the order may be new: they
// are hints. A field of the order that this release does not know would change what the order
// means, so that is kept in Unknown.
func (c *Claimed) UnmarshalJSON(raw []byte) error {
	var in struct {
		Order    json.RawMessage   `json:"order"`
		Expect   Expectation       `json:"expect"`
		Fence    tutti.Fence       `json:"fence"`
		Position tutti.Position    `json:"position"`
		Alone    *tutti.Alone      `json:"alone"`
		Trust    []tutti.Statement `json:"trust"`

		Operators *tutti.Statement `json:"operators"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	out := Claimed{Expect: in.Expect, Fence: in.Fence, Position: in.Position, Alone: in.Alone, Trust: in.Trust, Operators: in.Operators}
	if len(in.Order) > 0 && string(in.Order) != "null" {
		order := tutti.Order{}
		if out.Unknown = tutti.Strictly(in.Order, &order); out.Unknown != nil {
			var whose struct {
				Run  tutti.RunID    `json:"run"`
				Node tutti.NodeName `json:"node"`
			}
			if err := json.Unmarshal(in.Order, &whose); err != nil {
				return err
			}
			order = tutti.Order{Run: whose.Run, Node: whose.Node}
		}
		out.Order = &order
	}
	*c = out
	return nil
}

// Validate refuses an order that this release cannot carry out. There must be one.
func (c Claimed) Validate() error {
	if c.Unknown != nil {
		return tutti.Wrap(tutti.CodeInvalid, c.Unknown, "order of run %s", c.Order.Run)
	}
	return c.Order.Validate()
}

// Limits of a claim.
const (
	maxCapabilities = 200
	maxCapability   = 64  // bytes
	maxAgentVersion = 100 // bytes
)

// Validate refuses a list that no agent writes.
func (c Claim) Validate() error {
	if len(c.Knows) > maxCapabilities || len(c.Version) > maxAgentVersion {
		return tutti.Errorf(tutti.CodeInvalid, "claim: %d capabilities and a version of %d bytes, at most %d and %d", len(c.Knows), len(c.Version), maxCapabilities, maxAgentVersion)
	}
	if c.Seen.Epoch.Number > tutti.MaxEpoch {
		return tutti.Errorf(tutti.CodeInvalid, "claim: epoch %d was seen, at most %d", c.Seen.Epoch.Number, uint64(tutti.MaxEpoch))
	}
	for _, name := range c.Knows {
		if len(name) > maxCapability {
			return tutti.Errorf(tutti.CodeInvalid, "claim: a capability of %d bytes, at most %d", len(name), maxCapability)
		}
	}
	return nil
}
