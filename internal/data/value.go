package data

import (
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
)

// MaxValue bounds the size of a value, in bytes of JSON.
const MaxValue = 128 << 10

// Value is what a key has now, and where it comes from.
type Value struct {
	Key    string
	JSON   json.RawMessage // canonical
	Digest tutti.Digest
	Owner  tutti.NodeName // the node that published it, empty for operators
	By     string
	At     time.Time
	Seq    uint64
	Run    tutti.RunID
	Job    tutti.JobID
}

// CheckValue returns the canonical form of a value that is to be published.
// CodeInvalid: the key is malformed, the value no JSON or too large.
func CheckValue(key string, value json.RawMessage) (json.RawMessage, error) {
	if err := tutti.ValidateKey(key); err != nil {
		return nil, err
	}
	if len(value) > MaxValue {
		return nil, tutti.Errorf(tutti.CodeInvalid, "value of key %q: %d bytes, at most %d", key, len(value), MaxValue)
	}
	canonical, err := Canonical(value)
	if err != nil {
		return nil, tutti.Wrap("", err, "value of key %q", key)
	}
	return canonical, nil
}

// CheckOwner says whether a node (or an operator: no name) may set or unset a
// key as far as its owner is concerned. CodeConflict: somebody else has
// published it. Operators may unset everything; to set what a node owns they
// unset it first.
func (s *State) CheckOwner(key string, who tutti.NodeName) error {
	v, ok := s.values[key]
	switch {
	case !ok || v.Owner == who:
		return nil
	case v.Owner == "":
		return tutti.Errorf(tutti.CodeConflict, "key %q: set by %s, node %q cannot publish it: unset it first, or use another key", key, v.By, string(who))
	case who == "":
		return tutti.Errorf(tutti.CodeConflict, "key %q: owned by node %q: unset it first, or use another key", key, string(v.Owner))
	}
	return tutti.Errorf(tutti.CodeConflict, "key %q: owned by node %q, node %q cannot publish it too: use another key", key, string(v.Owner), string(who))
}

// Value returns what a key has now.
func (s *State) Value(key string) (Value, bool) {
	v, ok := s.values[key]
	return v, ok
}

// Values yields all values whose key the pattern covers, sorted by key.
func (s *State) Values(pattern string) iter.Seq[Value] {
	return func(yield func(Value) bool) {
		for _, key := range slices.Sorted(maps.Keys(s.values)) {
			if tutti.MatchPattern(pattern, key) && !yield(s.values[key]) {
				return
			}
		}
	}
}

// Hiera returns all hiera data of a node: the shared keys, and its own over them.
func (s *State) Hiera(node tutti.NodeName) map[string]json.RawMessage {
	all := make(map[string]json.RawMessage, len(s.shared))
	for key, v := range s.shared {
		all[key] = v.JSON
	}
	for key, v := range s.hiera[node] {
		all[key] = v.JSON
	}
	return all
}

// hieraValue returns what hiera on a node finds for one key.
func (s *State) hieraValue(node tutti.NodeName, key string) (Value, bool) {
	if v, ok := s.hiera[node][key]; ok {
		return v, true
	}
	v, ok := s.shared[key]
	return v, ok
}

func (s *State) setValue(e tutti.Event, b *tutti.ValueSet) error {
	canonical, err := Canonical(b.Value)
	if err != nil {
		return tutti.Wrap(tutti.CodeInternal, err, "event %d sets key %q", e.Seq, b.Key)
	}
	v := Value{
		Key: b.Key, JSON: canonical, Digest: digestOf(canonical), Owner: b.Owner,
		By: e.By, At: e.At, Seq: e.Seq, Run: b.Run, Job: b.Job,
	}
	s.values[b.Key] = v
	if node, key, ok := hieraKey(b.Key); ok {
		s.level(node)[key] = v
	}
	return nil
}

func (s *State) unset(key string) {
	delete(s.values, key)
	node, short, ok := hieraKey(key)
	if !ok {
		return
	}
	delete(s.level(node), short)
	if node != "" && len(s.hiera[node]) == 0 {
		delete(s.hiera, node)
	}
}

// level returns the hiera data of a node, or with no name the shared one.
func (s *State) level(node tutti.NodeName) map[string]Value {
	if node == "" {
		return s.shared
	}
	if s.hiera[node] == nil {
		s.hiera[node] = map[string]Value{}
	}
	return s.hiera[node]
}

// hieraKey splits the key of a value that hiera sees. The node is empty for the
// shared ones.
func hieraKey(path string) (tutti.NodeName, string, bool) {
	if key, ok := strings.CutPrefix(path, "shared/hiera/"); ok {
		return "", key, true
	}
	rest, ok := strings.CutPrefix(path, "node/")
	if !ok {
		return "", "", false
	}
	node, rest, _ := strings.Cut(rest, "/")
	key, ok := strings.CutPrefix(rest, "hiera/")
	return tutti.NodeName(node), key, ok
}
