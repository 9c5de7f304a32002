package tutti

import (
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
)

// A secret is a value that its sender seals before the server gets it (ADR 0025). The sender seals
// the value to its target nodes, and to the recovery key of the operators. The sealed content is a
// SecretText.

// Bounds of secrets.
const (
	MaxSecret = 32 << 10 // MaxSecret is the largest size of the JSON before sealing, in bytes.
	maxSealed = 64 << 10 // maxSealed is the largest size of the sealed JSON, in bytes.
	// MaxPieces bounds the pieces of one request. One event has room for that many pieces of small secrets.
	MaxPieces = 250
	maxFor    = 100 // targets
	maxID     = 64
	minID     = 16
)

// These are the kinds of targets of a secret.
const (
	forGroup = "group:"
	forNode  = "node:"
)

// SecretText is the content before it is sealed. SecretText contains Key and ID, so that nobody can send one secret
// in place of another secret.
type SecretText struct {
	Key   string          `json:"key"`
	ID    string          `json:"id"`
	Value json.RawMessage `json:"value"`
	// The field For is set only in the copy for the recovery key, and lists the targets of the
	// secret.
	For []string `json:"for,omitempty"`
}

// Piece is a copy of a secret that is sealed to one node.
type Piece struct {
	Node   NodeName `json:"node"`
	Box    Digest   `json:"box"` // Box is the digest of the key to which the piece is sealed.
	Sealed []byte   `json:"sealed"`
}

// Secret is a sealed value. A new value has a new ID. A Secret with the ID of the present value adds pieces to that
// value.
type Secret struct {
	Key      string   `json:"key"`
	ID       string   `json:"id"`                 // random
	For      []string `json:"for"`                // targets: group:NAME, node:NAME
	Recovery []byte   `json:"recovery,omitempty"` // Recovery is the copy that is sealed to the recovery key.
	Pieces   []Piece  `json:"pieces,omitempty"`
}

// Validate refuses an invalid secret. Only the named nodes can check whether the secret is sealed to them.
func (s Secret) Validate() error {
	if err := ValidateKey(s.Key); err != nil {
		return err
	}
	if len(s.ID) < minID || len(s.ID) > maxID || strings.ContainsFunc(s.ID, func(r rune) bool { return !isIDRune(r) }) {
		return Errorf(CodeInvalid, "secret %q: the id must have %d to %d letters and digits", s.Key, minID, maxID)
	}
	if err := ValidateTargets(s.For); err != nil {
		return Wrap("", err, "secret %q", s.Key)
	}
	if len(s.Pieces) > MaxPieces {
		return Errorf(CodeInvalid, "secret %q: %d pieces in one request, at most %d", s.Key, len(s.Pieces), MaxPieces)
	}
	if len(s.Recovery) > maxSealed {
		return Errorf(CodeInvalid, "secret %q: %d bytes for the recovery key, at most %d", s.Key, len(s.Recovery), maxSealed)
	}
	for i, p := range s.Pieces {
		if err := p.Node.Validate(); err != nil {
			return Wrap("", err, "secret %q", s.Key)
		}
		if err := p.Box.Validate(); err != nil {
			return Wrap("", err, "secret %q for node %s", s.Key, p.Node)
		}
		if len(p.Sealed) == 0 || len(p.Sealed) > maxSealed {
			return Errorf(CodeInvalid, "secret %q for node %s: %d bytes, want 1 to %d", s.Key, p.Node, len(p.Sealed), maxSealed)
		}
		if slices.ContainsFunc(s.Pieces[:i], func(o Piece) bool { return o.Node == p.Node }) {
			return Errorf(CodeInvalid, "secret %q: two pieces for node %s", s.Key, p.Node)
		}
	}
	if size := s.Size(); size > MaxSecretRequest {
		return Errorf(CodeInvalid, "secret %q: %d bytes of pieces in one request, at most %d", s.Key, size, MaxSecretRequest)
	}
	return nil
}

// Size returns the number of sealed bytes in the secret.
func (s Secret) Size() int {
	size := len(s.Recovery)
	for _, p := range s.Pieces {
		size += len(p.Sealed)
	}
	return size
}

// MaxSecretRequest bounds the number of sealed bytes in one request.
const MaxSecretRequest = 128 << 10

func isIDRune(r rune) bool {
	return r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
}

// ValidateTargets refuses a target that is neither a group nor a node.
func ValidateTargets(targets []string) error {
	if len(targets) == 0 || len(targets) > maxFor {
		return Errorf(CodeInvalid, "for %d targets, want 1 to %d: group:NAME or node:NAME", len(targets), maxFor)
	}
	for _, target := range targets {
		group, node := Target(target)
		var err error
		switch {
		case group != "":
			err = group.Validate()
		case node != "":
			err = node.Validate()
		default:
			err = Errorf(CodeInvalid, "target %q is neither group:NAME nor node:NAME", target)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Target splits a target into a group and a node. One of the two results is empty. If the text is not a target,
// both are empty.
func Target(text string) (GroupName, NodeName) {
	if name, is := strings.CutPrefix(text, forGroup); is {
		return GroupName(name), ""
	}
	name, _ := strings.CutPrefix(text, forNode)
	if name == text {
		return "", ""
	}
	return "", NodeName(name)
}

// ForNode and ForGroup return targets.
func ForNode(name NodeName) string   { return forNode + string(name) }
func ForGroup(name GroupName) string { return forGroup + string(name) } //nolint:revive // said above

// Targets reports whether a node in these groups is one of the targets.
func Targets(targets []string, node NodeName, groups []GroupName) bool {
	return slices.ContainsFunc(targets, func(target string) bool {
		group, name := Target(target)
		return name != "" && name == node || group != "" && slices.Contains(groups, group)
	})
}

// Digest returns the digest of every answer that consists of this secret. The digest does not depend on the nodes
// to which the secret is sealed.
func (s Secret) Digest() Digest { return DigestOf([]byte("tutti-secret-1\n" + s.ID)) }

// BoxDigest returns the digest of a node's X25519 key. The key has the form of NodeEnrolled.BoxKey.
func BoxDigest(boxKey string) Digest { return DigestOf([]byte(boxKey)) }

// ValidateBoxKey refuses a text that is not an X25519 key in base64.
func ValidateBoxKey(boxKey string) error {
	if raw, err := base64.StdEncoding.DecodeString(boxKey); err != nil || len(raw) != 32 {
		return Errorf(CodeInvalid, "the key for secrets is not an X25519 key")
	}
	return nil
}

// sealedType marks a secret in an answer.
const sealedType = "Tutti::Sealed"

// SealedValue is a secret in an answer. SealedValue contains the piece of the node that must open it. An answer
// that is only displayed has no piece.
type SealedValue struct {
	Type   string   `json:"__ptype"`
	ID     string   `json:"id"`
	Key    string   `json:"key"`
	For    []string `json:"for,omitempty"`
	Sealed []byte   `json:"sealed,omitempty"`
}

// Value returns the secret in the form of an answer.
func (s Secret) Value(sealed []byte) json.RawMessage {
	v := SealedValue{Type: sealedType, ID: s.ID, Key: s.Key, For: s.For, Sealed: sealed}
	if sealed != nil {
		v.For = nil
	}
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err) // json.Marshal has no error for strings and bytes
	}
	return raw
}

// ParseSealed returns the secret in the value of an answer. ParseSealed returns false if the value is not a secret.
func ParseSealed(value json.RawMessage) (SealedValue, bool) {
	var v SealedValue
	if !strings.Contains(string(value), sealedType) || json.Unmarshal(value, &v) != nil || v.Type != sealedType {
		return SealedValue{}, false
	}
	return v, true
}

// Digest returns the digest of the secret.
func (v SealedValue) Digest() Digest { return Secret{ID: v.ID}.Digest() }

// SecretSealed sets a key to a sealed value. If the ID equals the ID of the present value, the event adds
// pieces to that value. Owner is the node that published the value. Owner is empty if an operator sealed the value.
type SecretSealed struct {
	Secret
	Owner NodeName `json:"owner,omitempty"`
	Run   RunID    `json:"run,omitempty"`
	Job   JobID    `json:"job,omitempty"`
}

// Kind implements Body.
func (*SecretSealed) Kind() string { return "secret.sealed" }

// ID implements Body.
func (b *SecretSealed) ID() string { return b.Key }

// SealSecret is a request to store a secret. If Adds is true, the request adds pieces to the present value, which has
// the same ID. If Adds is false, the value is new. If Moves is true, the value has new targets from now on, and the
// request must contain Recovery.
type SealSecret struct {
	Secret
	Adds  bool `json:"adds,omitempty"`
	Moves bool `json:"moves,omitempty"`
}

// Recipients are the nodes of some targets.
type Recipients struct {
	Recovery string      `json:"recovery"`          // the public key in the fleet file
	Nodes    []Recipient `json:"nodes"`             // sorted by name
	Absent   []NodeName  `json:"absent,omitempty"`  // nodes that a target or a group lists, but that have not joined
	Unknown  []GroupName `json:"unknown,omitempty"` // groups that are not in the fleet file
}

// Recipient is a node and the key for its secrets.
type Recipient struct {
	Node   NodeName `json:"node"`
	BoxKey string   `json:"box_key"` // X25519, base64
}

// SecretRules are the fleet file's rules for secrets.
type SecretRules struct {
	Recovery string `json:"recovery"` // public key: age1…
}
