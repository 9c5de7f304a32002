package api

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
)

// Rotations rotate the fleet's CA and the keys of its bus (ADR 0027).
type Rotations interface {
	// RotateCA does one step of the rotation, or completes an interrupted step. The error is CodeConflict if
	// another step must come first. The error is also CodeConflict if a node or operator has not followed the rotation
	// and the call does not name this node or operator.
	RotateCA(ctx context.Context, in RotateCA) (CARotation, error)
	// ShowCARotation returns the phase of the rotation, and the nodes and operators that have not followed.
	ShowCARotation(ctx context.Context) (CARotation, error)
	// FollowRotation is like Operators.RenewOperator, but the CA of the issuing key set signs the certificate.
	// FollowRotation is for clients that can store all CAs of the answer.
	FollowRotation(ctx context.Context, request []byte) (IssuedOperator, error)
}

// RotateCA is a step. The fields Leave and LeaveOperators name the nodes and operators that the end of the rotation
// may lock out.
type RotateCA struct {
	Step           tutti.RotationStep `json:"step"`
	Leave          []tutti.NodeName   `json:"leave,omitempty"`
	LeaveOperators []string           `json:"leave_operators,omitempty"`
	// The field Last allows the step even if no operator, or no operator with admin, can connect after
	// the step.
	Last bool `json:"last,omitempty"`
}

// CARotation is the present state of a rotation. Phase is empty if there was never a rotation.
type CARotation struct {
	Phase tutti.RotationPhase `json:"phase,omitempty"`
	Since time.Time           `json:"since,omitzero"` // time of the last step
	CA    tutti.Digest        `json:"ca"`             // CA is the CA of the earlier set while two sets are trusted.
	Next  tutti.Digest        `json:"next,omitempty"` // The field Next is the CA of the new set while two sets are trusted.
	// Behind lists the nodes and operators that the end of the rotation would lock out. After the end of the rotation
	// the list contains nodes that still trust the removed set.
	Behind []BehindRotation `json:"behind,omitempty"`
	// Left and LeftOperators list the nodes and operators without access since the end of the last rotation.
	Left          []tutti.NodeName `json:"left,omitempty"`
	LeftOperators []string         `json:"left_operators,omitempty"`
	Nodes         int              `json:"nodes"` // number of nodes in the fleet
	Operators     int              `json:"operators"`
}

// BehindRotation is a node or an operator that has not followed a rotation.
type BehindRotation struct {
	Node     tutti.NodeName `json:"node,omitempty"`
	Operator string         `json:"operator,omitempty"`
	Why      string         `json:"why"`
	SeenAt   time.Time      `json:"seen_at,omitzero"` // SeenAt is known only since the server's start.
	// Foreign is true if the node trusts a CA that never belonged to this server.
	Foreign bool `json:"foreign,omitempty"`
}
