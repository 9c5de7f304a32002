package wire

import (
	"encoding/json"

	"github.com/tutti-project/tutti"
)

// Claim asks for the node's next run. Claim lists the agent's capabilities, so that the server
// sends no order that the agent would misunderstand.
type Claim struct {
	Version string `json:"version,omitempty"` // of the agent
	// The field Knows lists the capabilities of the agent's release. The list is empty for release 0.2.0
	// or older.
	Knows []tutti.Capability `json:"knows,omitempty"`
	// Begun is the fence of the last order that the node has begun. Before the first order Begun is
	// the zero fence. Begun is nil if the agent stores no fence. If a node's disk was restored to an
	// earlier state, the node reports an older fence.
	Begun *tutti.Fence `json:"begun,omitempty"`
	// The field Seen is the last position of the server's log that this node knows.
	Seen tutti.Position `json:"seen,omitzero"`
	// The field Trusts is the counter of the last statement about code keys that the node has accepted.
	// Trusts is nil if the agent does not know such statements.
	Trusts *uint64 `json:"trusts,omitempty"`
	// Operators is the counter of the node's list of operators. Operators is nil if the agent does
	// not know such lists.
	Operators *uint64 `json:"operators,omitempty"`
}

// Claimed contains the order, if there is one. The server sends the same order again until it has
// the result. If the node has the run's marker, the node follows the run and does not start the run
// a second time.
type Claimed struct {
	Order  *tutti.Order `json:"order,omitempty"`
	Expect Expectation  `json:"expect,omitempty"` // which run may follow this order
	// Fence is the fence of the order. Each order that a node begins must have a higher fence than the order that the
	// node has begun before. Fence is zero if the server is of release 0.2.0 or older.
	Fence    tutti.Fence    `json:"fence,omitzero"`
	Position tutti.Position `json:"position,omitzero"` // of the server
	// Alone says what the node does while its server is away. If Alone is nil, the node does nothing,
	// as with a server of release 0.2.0 or older.
	Alone *tutti.Alone `json:"alone,omitempty"`
	// Trust lists, in order, the statements about code keys that the node has not accepted yet.
	Trust []tutti.Statement `json:"trust,omitempty"`
	// Operators is the list of operators who sign actions, if the node has an older list.
	Operators *tutti.Statement `json:"operators,omitempty"`
	// Inventory says what the server wants to hold for queries, and what it holds already. Inventory is nil if it wants
	// nothing.
	Inventory *WantedInventory `json:"inventory,omitempty"`
	// Unknown is the error about order fields that this release does not know. If Unknown is set,
	// only Run and Node of the order are set. No agent may carry out an order with unknown fields.
	Unknown error `json:"-"`
}

// Expectation says which run may follow on a node.
type Expectation string

// Expectations.
const (
	ExpectNothing Expectation = ""
	ExpectChange  Expectation = "change" // a run may follow if something changes, because the fleet reacts
	ExpectTurn    Expectation = "turn"   // a run follows when it is the node's turn in a current job
)

// UnmarshalJSON decodes an answer to a claim. Unknown fields outside the order are allowed, because
// they are only hints. An unknown field inside the order would change the meaning of the order, so
// UnmarshalJSON stores an error in Unknown.
func (c *Claimed) UnmarshalJSON(raw []byte) error {
	var in struct {
		Order    json.RawMessage   `json:"order"`
		Expect   Expectation       `json:"expect"`
		Fence    tutti.Fence       `json:"fence"`
		Position tutti.Position    `json:"position"`
		Alone    *tutti.Alone      `json:"alone"`
		Trust    []tutti.Statement `json:"trust"`

		Operators *tutti.Statement `json:"operators"`
		Inventory *WantedInventory `json:"inventory"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return err
	}
	out := Claimed{Expect: in.Expect, Fence: in.Fence, Position: in.Position, Alone: in.Alone, Trust: in.Trust, Operators: in.Operators, Inventory: in.Inventory}
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

// Validate refuses an order that this release cannot carry out. The caller must check first that Order is set.
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

// Validate refuses a claim with a size or an epoch that no agent sends.
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
