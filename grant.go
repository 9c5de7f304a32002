package tutti

import (
	"regexp"
	"strings"
)

var typeRE = regexp.MustCompile(`^[A-Z][a-z0-9_]*(::[A-Z][a-z0-9_]*)*$`)

// ValidateType accepts the name of a resource type in the form of a reference:
// `Ring_object_device`, `Swift::Ringsync`.
func ValidateType(name string) error {
	if !typeRE.MatchString(name) || len(name) > 255 {
		return Errorf(CodeInvalid, "resource type %q: each part begins with a capital and goes on with lower-case letters, digits and '_', like Swift::Ringsync", name)
	}
	return nil
}

// ValidatePattern accepts a key (see ValidateKey) whose last part may be `**`. As the last part,
// `**` stands for one or more parts. The pattern `**` alone matches any key.
func ValidatePattern(pattern string) error {
	if pattern == "**" {
		return nil
	}
	if ValidateKey(strings.TrimSuffix(pattern, "/**")) != nil {
		return Errorf(CodeInvalid, "key pattern %q: parts of letters, digits, '_', '.', ':' and '-', joined by '/', and '**' only as the last one", pattern)
	}
	return nil
}

// MatchPattern reports whether a pattern covers a key. MatchPattern compares whole parts:
// `node/web/**` does not cover `node/web.example.net/x`.
func MatchPattern(pattern, key string) bool {
	if pattern == "**" {
		return true
	}
	if prefix, deep := strings.CutSuffix(pattern, "**"); deep {
		return len(key) > len(prefix) && strings.HasPrefix(key, prefix)
	}
	return pattern == key
}

// DangerousPattern reports whether a node with write access to the pattern can change the data of
// other nodes. Hiera reads `node/…` on the named node, and `shared/hiera/…` on all nodes.
func DangerousPattern(pattern string) bool {
	prefix := strings.TrimSuffix(pattern, "**")
	return strings.HasPrefix(prefix, "node/") || strings.HasPrefix(prefix, sharedHiera) ||
		prefix != pattern && strings.HasPrefix(sharedHiera, prefix)
}

const sharedHiera = "shared/hiera/"

// Withdrawal lists the publications of a node that the server withdraws, because the fleet file no
// longer grants them.
type Withdrawal struct {
	Node    NodeName `json:"node"`
	Values  []string `json:"values,omitempty"`  // keys
	Exports int      `json:"exports,omitempty"` // how many resources
	Types   []string `json:"types,omitempty"`   // types of these resources
}
