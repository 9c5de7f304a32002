package tutti

import (
	"slices"
)

// RotationPhase is the present phase of a CA rotation.
type RotationPhase string

// The phases. During the first three phases two key sets are trusted.
const (
	RotationBegun    RotationPhase = "begun"    // the old set issues credentials
	RotationSwitched RotationPhase = "switched" // the new set issues credentials
	// the old set issues credentials again, and some nodes or operators still have credentials of the new set
	RotationReturning RotationPhase = "returning"
	RotationFinished  RotationPhase = "finished"  // the old set was removed
	RotationAbandoned RotationPhase = "abandoned" // the new set was removed
)

// Rotates reports whether two key sets are trusted during this phase.
func (p RotationPhase) Rotates() bool {
	return p == RotationBegun || p == RotationSwitched || p == RotationReturning
}

// RotationStep is the step of a rotation that an operator requests.
type RotationStep string

// The steps.
const (
	RotationBegin   RotationStep = "begin"
	RotationSwitch  RotationStep = "switch"
	RotationFinish  RotationStep = "finish"
	RotationAbandon RotationStep = "abandon"
)

// KeySet names a set of the server's keys. CA is the digest of the CA's public key, as in join tokens. Issuer
// is the public key that signs the nodes' JWTs.
type KeySet struct {
	CA     Digest `json:"ca"`
	Issuer string `json:"issuer"`
}

// KeySets are the key sets that a server trusts.
type KeySets struct {
	Phase   RotationPhase // Phase is empty if the server trusts only the present set.
	Present KeySet
	Next    KeySet
	Was     []Digest // the CAs of removed sets
}

// Issuing returns the set that issues credentials.
func (s KeySets) Issuing() KeySet {
	if s.Phase == RotationSwitched {
		return s.Next
	}
	return s.Present
}

// Trusted returns the CAs of the trusted sets. The CA of the present set is the first.
func (s KeySets) Trusted() []Digest {
	out := []Digest{s.Present.CA}
	if s.Phase.Rotates() {
		out = append(out, s.Next.CA)
	}
	return out
}

// Pinned has the sorted list of CAs that a node trusts, and the key that signed the node's JWT.
type Pinned struct {
	CAs    []Digest `json:"cas"`
	Issuer string   `json:"issuer"`
}

// Equal reports whether two nodes trust the same CAs and have JWTs of the same issuer.
func (p Pinned) Equal(other Pinned) bool {
	return p.Issuer == other.Issuer && slices.Equal(p.CAs, other.CAs)
}

// These constants limit the size of the Pinned value that a node reports.
const (
	maxPinned = 8
	maxIssuer = 64 // bytes
)

// Validate refuses values that no agent sends.
func (p Pinned) Validate() error {
	if len(p.CAs) == 0 || len(p.CAs) > maxPinned || len(p.Issuer) > maxIssuer || !slices.IsSorted(p.CAs) {
		return Errorf(CodeInvalid, "%d CAs, sorted %t, issuer of %d bytes: want 1 to %d sorted CAs, and an issuer of at most %d bytes", len(p.CAs), slices.IsSorted(p.CAs), len(p.Issuer), maxPinned, maxIssuer)
	}
	for _, ca := range p.CAs {
		if err := ca.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// CARotated says that a rotation of the CA and of the bus keys has reached another phase.
type CARotated struct {
	Phase RotationPhase `json:"phase"`
	From  KeySet        `json:"from"` // the earlier set
	To    KeySet        `json:"to"`   // the new set
	// The field Left lists the nodes that the operator gave up, because they had only credentials of the
	// removed set. LeftOperators lists the operators that were given up for the same reason.
	Left          []NodeName `json:"left,omitempty"`
	LeftOperators []string   `json:"left_operators,omitempty"`
}

// Kind implements Body.
func (*CARotated) Kind() string { return "ca.rotated" }

// ID implements Body.
func (*CARotated) ID() string { return "ca" }

// Stays returns the one set that is trusted after the rotation has ended.
func (b *CARotated) Stays() KeySet {
	if b.Phase == RotationFinished {
		return b.To
	}
	return b.From
}

// NodePinned says which CAs and which issuer a node has reported.
type NodePinned struct {
	Node NodeName `json:"node"`
	Pinned
}

// Kind implements Body.
func (*NodePinned) Kind() string { return "node.pinned" }

// ID implements Body.
func (b *NodePinned) ID() string { return string(b.Node) }

// CAProtocol returns the ALPN protocol with which a client names the CA that it has pinned. The server then shows
// a certificate that this CA has issued.
func CAProtocol(ca Digest) string { return "tutti-ca-" + ca.Hex()[:min(32, len(ca.Hex()))] }
