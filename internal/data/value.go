package data

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/wire"
)

// MaxValue is the largest size of a value, in bytes of JSON.
const MaxValue = 128 << 10

// The type `value` is the canonical value of a key, with its origin. The digest of the zero value is empty.
type value struct {
	api.ValueView
	digest tutti.Digest
	sealed *sealed // nil: an ordinary value
}

// CheckValue returns the canonical form of a value before it is published. CheckValue returns CodeInvalid if the key
// is malformed, or if the value is not JSON or is too large.
func CheckValue(key string, raw json.RawMessage) (json.RawMessage, error) {
	if err := tutti.ValidateKey(key); err != nil {
		return nil, err
	}
	if len(raw) > MaxValue {
		return nil, tutti.Errorf(tutti.CodeInvalid, "value of key %q: %d bytes, at most %d", key, len(raw), MaxValue)
	}
	canonical, err := Canonical(raw)
	if err == nil {
		err = checkIntegers(canonical)
	}
	if _, is := tutti.ParseSealed(canonical); is && err == nil {
		err = tutti.Errorf(tutti.CodeInvalid, "an object with the __ptype Tutti::Sealed would look like a secret")
	}
	if err != nil {
		return nil, tutti.Wrap("", err, "value of key %q", key)
	}
	return canonical, nil
}

// checkIntegers refuses integers that Puppet cannot read, because Puppet's Integer has 64 bits. checkIntegers is used
// only for new values, because the log may already have larger integers.
func checkIntegers(canonical json.RawMessage) error {
	value, err := decode(canonical)
	if err != nil {
		return err
	}
	at, found := tooLarge(value)
	if found == "" {
		return nil
	}
	if at != "" {
		at = " at " + at
	}
	return tutti.Errorf(tutti.CodeInvalid, "integer %s%s is outside the range of Puppet, %d to %d; write it as a string",
		excerpt([]byte(found)), at, math.MinInt64, math.MaxInt64)
}

// tooLarge returns the first integer that does not fit into 64 bits, and its place in the value. Both results are
// empty if there is no such integer.
func tooLarge(value any) (at, number string) {
	switch v := value.(type) {
	case json.Number:
		if _, err := strconv.ParseInt(string(v), 10, 64); errors.Is(err, strconv.ErrRange) {
			return "", string(v)
		}
	case []any:
		for i, element := range v {
			if at, number = tooLarge(element); number != "" {
				return fmt.Sprintf("[%d]%s", i, at), number
			}
		}
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if at, number = tooLarge(v[name]); number != "" {
				return fmt.Sprintf("[%q]%s", name, at), number
			}
		}
	}
	return "", ""
}

// CheckPublish returns a publication with its value in canonical form. CodeInvalid: see CheckValue. It refuses null.
func CheckPublish(in wire.Publish) (wire.Publish, error) {
	if in.Withdraw {
		return in, tutti.ValidateKey(in.Key)
	}
	var err error
	if in.Value, err = CheckValue(in.Key, in.Value); err == nil && string(in.Value) == "null" {
		err = tutti.Errorf(tutti.CodeInvalid, "value of %q: null is not a value; withdraw the value instead", in.Key)
	}
	return in, err
}

// MayChange refuses a withdrawal if there is no value.
func (s *State) MayChange(in wire.Publish) error {
	if _, found := s.values[in.Key]; in.Withdraw && !found {
		return tutti.Errorf(tutti.CodeNotFound, "no value %q; see: tutti data list", in.Key)
	}
	return nil
}

// MayOwn checks whether a node may set or unset a key that may already have an owner. For an operator, the node is
// empty. MayOwn returns CodeConflict if the key belongs to another publisher. Operators may overwrite the key of any
// owner. After an operator has overwritten a key, the former owner may no longer publish the key.
func (s *State) MayOwn(key string, who tutti.NodeName) error {
	v, ok := s.values[key]
	switch {
	case !ok || who == "" || v.Owner == who:
		return nil
	case v.Owner == "":
		return tutti.Errorf(tutti.CodeConflict, "key %q: set by %s, so node %q cannot publish it: let an operator unset it first, or use another key on the node", key, v.By, string(who))
	}
	return tutti.Errorf(tutti.CodeConflict, "key %q: owned by node %q, so node %q cannot publish it too: use another key", key, string(v.Owner), string(who))
}

// Value returns the canonical value of a key.
func (s *State) Value(key string) (api.ValueView, bool) {
	v, ok := s.values[key]
	return v.ValueView, ok
}

// OwnedBy returns the keys that a node has published, sorted.
func (s *State) OwnedBy(node tutti.NodeName) []string {
	return slices.Sorted(maps.Keys(s.owned[node]))
}

// Owns returns the number of keys that a node has published.
func (s *State) Owns(node tutti.NodeName) int { return len(s.owned[node]) }

// The method `disown` removes the owner of a key.
func (s *State) disown(key string) {
	owner := s.values[key].Owner
	delete(s.owned[owner], key)
	if len(s.owned[owner]) == 0 {
		delete(s.owned, owner)
	}
}

// Values returns the value with the key prefix and the values below it, sorted by key. An empty prefix selects all
// values. The prefix must end at a complete part of the path. So `node/web` covers `node/web/x`, but not
// `node/web.example.net/x`.
func (s *State) Values(prefix string) []api.ValueView {
	prefix = strings.TrimSuffix(prefix, "/")
	var found []api.ValueView
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if below(key, prefix) {
			found = append(found, s.values[key].ValueView)
		}
	}
	return found
}

func below(key, prefix string) bool {
	return prefix == "" || key == prefix || strings.HasPrefix(key, prefix+"/")
}

// A page has at most pageValues values. A page also ends as soon as its values have pageBytes bytes.
const (
	pageValues = 2000
	pageBytes  = 1 << 20
)

// Page returns the first values below a prefix, sorted by key, and whether there are more. Page returns only keys that
// come after the argument `after` and for which the function `sees` returns true. Page sorts only a few keys, even if
// there are many values.
func (s *State) Page(prefix, after string, sees func(key string) bool) (values []api.ValueView, more bool) {
	prefix = strings.TrimSuffix(prefix, "/")
	const keep = pageValues + 1
	keys := make([]string, 0, 2*keep)
	for key := range s.values {
		if key <= after || !below(key, prefix) || !sees(key) {
			continue
		}
		if keys = append(keys, key); len(keys) == cap(keys) {
			slices.Sort(keys)
			keys = keys[:keep]
		}
	}
	slices.Sort(keys)
	bytes := 0
	for i, key := range keys {
		if i == pageValues || bytes > pageBytes {
			return values, true
		}
		v := s.values[key].ValueView
		values, bytes = append(values, v), bytes+len(v.Value)
	}
	return values, false
}

// Hiera returns all hiera data of a node. The node's own keys replace shared keys. Hiera includes secrets that are
// sealed to the node.
func (s *State) Hiera(node tutti.NodeName) map[string]json.RawMessage {
	all := make(map[string]json.RawMessage, len(s.shared))
	for _, level := range []map[string]value{s.shared, s.hiera[node]} {
		for key, v := range level {
			if delete(all, key); s.digestFor(v, node) != "" {
				all[key] = s.valueFor(v, node)
			}
		}
	}
	return all
}

// HieraCount returns an upper limit for the number of keys that Hiera returns for a node.
func (s *State) HieraCount(node tutti.NodeName) int { return len(s.shared) + len(s.hiera[node]) }

// hieraValue returns the value that hiera on a node finds for a key. hieraValue returns the zero value if there is
// none. The node's own level may have a secret for the key that is not sealed to the node. Such a secret hides the
// shared value, too.
func (s *State) hieraValue(node tutti.NodeName, key string) value {
	v, own := s.hiera[node][key]
	if !own {
		v = s.shared[key]
	}
	if s.digestFor(v, node) == "" {
		return value{}
	}
	return v
}

func (s *State) setValue(e tutti.Event, b *tutti.ValueSet) {
	canonical := canonicalOrRaw(b.Value)
	s.put(value{
		ValueView: api.ValueView{Key: b.Key, Value: canonical, Owner: b.Owner, By: e.By, At: e.At, Seq: e.Seq, Run: b.Run, Job: b.Job},
		digest:    tutti.DigestOf(canonical),
	})
}

// The method `put` stores v as the value of the key v.Key.
func (s *State) put(v value) {
	had := s.values[v.Key]
	s.disown(v.Key)
	account(s, had, v)
	s.values[v.Key] = v
	if delete(s.sealed, v.Key); v.sealed != nil {
		s.sealed[v.Key] = struct{}{}
	}
	if v.Owner != "" {
		if s.owned[v.Owner] == nil {
			s.owned[v.Owner] = map[string]bool{}
		}
		s.owned[v.Owner][v.Key] = true
	}
	if node, key, ok := hieraKey(v.Key); ok {
		s.level(node)[key] = v
	}
	s.valueChanged(v.Key, had)
}

func (s *State) unset(key string) {
	had := s.values[key]
	s.disown(key)
	account(s, had, value{})
	delete(s.values, key)
	delete(s.sealed, key)
	if node, short, ok := hieraKey(key); ok {
		delete(s.level(node), short)
		if node != "" && len(s.hiera[node]) == 0 {
			delete(s.hiera, node)
		}
	}
	s.valueChanged(key, had)
}

// The method `level` returns the hiera data of a node. If the node is empty, the result is the shared data.
func (s *State) level(node tutti.NodeName) map[string]value {
	if node == "" {
		return s.shared
	}
	if s.hiera[node] == nil {
		s.hiera[node] = map[string]value{}
	}
	return s.hiera[node]
}

func sharedHiera(key string) string { return "shared/hiera/" + key }

func nodeHiera(node tutti.NodeName, key string) string {
	return "node/" + string(node) + "/hiera/" + key
}

// hieraKey splits the path of a hiera value into node and key. The node is empty for shared keys.
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
