package tutti

import (
	"slices"
)

// RotationPhase is how far a rotation of the CA has come.
type RotationPhase string

// The phases. In the first three of them two key sets are trusted.
const (
	RotationBegun     RotationPhase = "begun"     // the old set issues
	RotationSwitched  RotationPhase = "switched"  // the new set issues
	RotationReturning RotationPhase = "returning" // the old set issues again, and some still have credentials of the new one
	RotationFinished  RotationPhase = "finished"  // the old set is gone
	RotationAbandoned RotationPhase = "abandoned" // the new set is gone
)

// Rotates reports whether two key sets are trusted in a phase.
func (p RotationPhase) Rotates() bool {
	return p == RotationBegun || p == RotationSwitched || p == RotationReturning
}

// RotationStep is what an operator wants of a rotation.
type RotationStep string

// The steps.
const (
	RotationBegin   RotationStep = "begin"
	RotationSwitch  RotationStep = "switch"
	RotationFinish  RotationStep = "finish"
	RotationAbandon RotationStep = "abandon"
)

// KeySet names a set of the server's keys: by its CA (the digest of the CA's public key, as in join tokens) and
// by the public key that signs nodes' JWTs.
type KeySet struct {
	CA     Digest `json:"ca"`
	Issuer string `json:"issuer"`
}

// KeySets are the sets that a server trusts.
type KeySets struct {
	Phase   RotationPhase // empty: there is one set, the present one
	Present KeySet
	Next    KeySet
	Was     []Digest // the CAs of sets that are gone
}

// Issuing is the set that issues credentials.
func (s KeySets) Issuing() KeySet {
	if s.Phase == RotationSwitched {
		return s.Next
	}
	return s.Present
}

// Trusted are the CAs of the sets, the present one first.
func (s KeySets) Trusted() []Digest {
	out := []Digest{s.Present.CA}
	if s.Phase.Rotates() {
		out = append(out, s.Next.CA)
	}
	return out
}

// Pinned is what a node trusts and uses: the CAs that it trusts, sorted, and which key signed its JWT.
type Pinned struct {
	CAs    []Digest `json:"cas"`
	Issuer string   `json:"issuer"`
}

// Equal reports whether a node stands on the same.
func (p Pinned) Equal(other Pinned) bool {
	return p.Issuer == other.Issuer && slices.Equal(p.CAs, other.CAs)
}

// Bounds of what a node says that it stands on.
const (
	maxPinned = 8
	maxIssuer = 64 // bytes
)

// Validate refuses what no agent says.
func (p Pinned) Validate() error {
	if len(p.CAs) == 0 || len(p.CAs) > maxPinned || len(p.Issuer) > maxIssuer || !slices.IsSorted(p.CAs) {
		return Errorf(CodeInvalid, "%d CAs, sorted %t, issuer of %d bytes: want 1 to %d, sorted, and at most %d", len(p.CAs), slices.IsSorted(p.CAs), len(p.Issuer), maxPinned, maxIssuer)
	}
	for _, ca := range p.CAs {
		if err := ca.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// CARotated says how far a rotation of the CA and of the keys of the bus has come.
type CARotated struct {
	Phase RotationPhase `json:"phase"`
	From  KeySet        `json:"from"` // that was there before
	To    KeySet        `json:"to"`   // that was made
	// Left are the nodes and operators, as the operator has named them, that had credentials of the removed set only.
	Left          []NodeName `json:"left,omitempty"`
	LeftOperators []string   `json:"left_operators,omitempty"`
}

// Kind implements Body.
func (*CARotated) Kind() string { return "ca.rotated" }

// ID implements Body.
func (*CARotated) ID() string { return "ca" }

// Stays is the set that is trusted alone after the end.
func (b *CARotated) Stays() KeySet {
	if b.Phase == RotationFinished {
		return b.To
	}
	return b.From
}

// NodePinned says what a node stands on, by its own word.
type NodePinned struct {
	Node NodeName `json:"node"`
	Pinned
}

// Kind implements Body.
func (*NodePinned) Kind() string { return "node.pinned" }

// ID implements Body.
func (b *NodePinned) ID() string { return string(b.Node) }

// CAProtocol is the ALPN protocol by which a client names a CA that it has pinned: the server shows a certificate
// that it can check.
func CAProtocol(ca Digest) string { return "tutti-ca-" + ca.Hex()[:min(32, len(ca.Hex()))] }
