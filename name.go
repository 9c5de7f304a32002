package tutti

import (
	"crypto/sha256"
	"encoding/hex"
	"regexp"
	"strings"
)

// NodeName is a node's Puppet certname. A NodeName never becomes part of a subject or a path,
// because certnames contain dots. In a subject or path, the rights of `web` could include the rights of
// `web.example.net`.
type NodeName string

// GroupName names a set of nodes of the fleet file.
type GroupName string

// PlanName names a plan of the fleet file.
type PlanName string

// StepName names a step inside its plan.
type StepName string

// NodeKey is the public nkey (U…) that a node has made itself. This key alone identifies a node on
// the bus.
type NodeKey string

// JobID names one execution of a plan.
type JobID string

// RunID names one Puppet process for which the log has an order. A RunID is a UUID.
type RunID string

// TokenID names one join token.
type TokenID string

// Digest is `sha256:` followed by 64 lower-case hex digits.
type Digest string

var (
	nodeNameRE = regexp.MustCompile(`^[a-z0-9_][a-z0-9._-]{0,252}$`)
	wordRE     = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,62}$`)
	nodeKeyRE  = regexp.MustCompile(`^U[A-Z2-7]{55}$`)
	digestRE   = regexp.MustCompile(`^sha256:[0-9a-f]{64}$`)
	// environmentRE matches the names that Puppet accepts for an environment.
	environmentRE = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)
	uuidRE        = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// Validate accepts each name that Puppet accepts as a certname.
func (n NodeName) Validate() error {
	if !nodeNameRE.MatchString(string(n)) || strings.Contains(string(n), "..") {
		return Errorf(CodeInvalid, "node name %q: lower-case letters, digits, '.', '_' and '-' only, as in a Puppet certname", string(n))
	}
	return nil
}

// Validate accepts lower-case words with digits, '_' and '-'.
func (g GroupName) Validate() error { return validWord("group", string(g)) }

// Validate accepts lower-case words with digits, '_' and '-'.
func (p PlanName) Validate() error { return validWord("plan", string(p)) }

// Validate accepts lower-case words with digits, '_' and '-'.
func (s StepName) Validate() error { return validWord("step", string(s)) }

func validWord(noun, word string) error {
	if !wordRE.MatchString(word) {
		return Errorf(CodeInvalid, "%s name %q: lower-case letters, digits, '_' and '-' only, at most 63", noun, word)
	}
	return nil
}

// Validate accepts the textual form of a public user nkey.
func (k NodeKey) Validate() error {
	if !nodeKeyRE.MatchString(string(k)) {
		return Errorf(CodeInvalid, "node key %q: not a public nkey", string(k))
	}
	return nil
}

// Validate accepts a lower-case UUID.
func (r RunID) Validate() error {
	if !uuidRE.MatchString(string(r)) {
		return Errorf(CodeInvalid, "run id %q: not a UUID", string(r))
	}
	return nil
}

// Validate accepts `sha256:` with 64 lower-case hex digits.
func (d Digest) Validate() error {
	if !digestRE.MatchString(string(d)) {
		return Errorf(CodeInvalid, "digest %q: not sha256: and 64 hex digits", string(d))
	}
	return nil
}

// DigestOf returns the digest of content.
func DigestOf(content []byte) Digest {
	sum := sha256.Sum256(content)
	return Digest("sha256:" + hex.EncodeToString(sum[:]))
}

// Hex returns the digest without its algorithm.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), "sha256:") }

// ValidateKey accepts the key of a value. A key has parts of letters, digits and `_.:-`, joined by
// `/`. No part may be `.` or `..`, and the key may have at most 512 bytes.
func ValidateKey(key string) error {
	if len(key) > 512 || !isKey(key) {
		return Errorf(CodeInvalid, "key %q: parts of letters, digits, '_', '.', ':' and '-', joined by '/', at most 512 bytes", key)
	}
	return nil
}

// isKey reads a key only once, because the server checks very many keys.
func isKey(key string) bool {
	for part := range strings.SplitSeq(key, "/") {
		if part == "" || part == "." || part == ".." {
			return false
		}
		for i := range len(part) {
			c := part[i]
			word := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
			if !word && strings.IndexByte("_.:-", c) < 0 {
				return false
			}
		}
	}
	return true
}
