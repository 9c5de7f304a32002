package api

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
)

// Rotations rotate the fleet's CA and the keys of its bus (ADR 0027).
type Rotations interface {
	// RotateCA takes a step, or finishes one that was cut off. CodeConflict: another step comes first, or a node or
	// an operator has not followed and was not named.
	RotateCA(ctx context.Context, in RotateCA) (CARotation, error)
	// ShowCARotation says how far the rotation is, and which nodes and operators have not followed.
	ShowCARotation(ctx context.Context) (CARotation, error)
	// FollowRotation is Operators.RenewOperator by the CA that issues now, for a client that takes all CAs that come with it.
	FollowRotation(ctx context.Context, request []byte) (IssuedOperator, error)
}

// RotateCA is a step. It names the nodes and operators that its end may lock out.
type RotateCA struct {
	Step           tutti.RotationStep `json:"step"`
	Leave          []tutti.NodeName   `json:"leave,omitempty"`
	LeaveOperators []string           `json:"leave_operators,omitempty"`
	Last           bool               `json:"last,omitempty"` // allows to leave nobody who gets in, or nobody who is admin
}

// CARotation says how far a rotation is. Without a phase there was no rotation.
type CARotation struct {
	Phase tutti.RotationPhase `json:"phase,omitempty"`
	Since time.Time           `json:"since,omitzero"` // the last step
	CA    tutti.Digest        `json:"ca"`             // of the set that was there before, while two are trusted
	Next  tutti.Digest        `json:"next,omitempty"` // of the new set, while two are trusted
	// Behind are the nodes and operators that the next end would lock out; after the end, nodes that still trust the removed set.
	Behind []BehindRotation `json:"behind,omitempty"`
	// Left are the nodes and operators that the last end has locked out and that have not come back.
	Left          []tutti.NodeName `json:"left,omitempty"`
	LeftOperators []string         `json:"left_operators,omitempty"`
	Nodes         int              `json:"nodes"` // of the fleet
	Operators     int              `json:"operators"`
}

// BehindRotation is a node or an operator who has not followed a rotation.
type BehindRotation struct {
	Node     tutti.NodeName `json:"node,omitempty"`
	Operator string         `json:"operator,omitempty"`
	Why      string         `json:"why"`
	SeenAt   time.Time      `json:"seen_at,omitzero"` // since the server was started
	// Foreign: the node trusts a CA that was never this server's.
	Foreign bool `json:"foreign,omitempty"`
}
