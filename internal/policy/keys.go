package policy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Keys says which keys one node may write and read. A Keys is made once and used for many keys. Only one goroutine may
// use a Keys at a time.
type Keys struct {
	fleet       tutti.Fleet
	node        tutti.NodeName
	groups      []tutti.GroupName
	granted     bool // the fields write and read are set
	write, read patterns
}

// KeysOf returns the keys that the grants of a fleet allow a node to write and read.
func KeysOf(fleet tutti.Fleet, groups []tutti.GroupName, node tutti.NodeName) *Keys {
	return &Keys{fleet: fleet, node: node, groups: groups}
}

// MayWrite returns nil if the node may set and unset the key.
func (k *Keys) MayWrite(key string) error {
	if k.Writes(key) {
		return nil
	}
	return refuse(k.fleet, k.groups, k.node, fmt.Sprintf("write %q", key), "no grant", tutti.Grant{Write: []string{key}, Dangerous: tutti.DangerousPattern(key)})
}

// MayRead returns nil if the node may read the key.
func (k *Keys) MayRead(key string) error {
	if k.Reads(key) {
		return nil
	}
	return refuse(k.fleet, k.groups, k.node, fmt.Sprintf("read %q", key), "no grant", tutti.Grant{Read: []string{key}})
}

// Writes decides in the same way as MayWrite, but makes no text for a refusal. Making this text takes much longer
// than the decision.
func (k *Keys) Writes(key string) bool {
	return tutti.MatchPattern(own(k.node), key) || k.look().write.cover(key)
}

// Reads decides in the same way as MayRead, but makes no text for a refusal.
func (k *Keys) Reads(key string) bool {
	return tutti.MatchPattern("shared/**", key) || tutti.MatchPattern(own(k.node), key) || k.look().read.cover(key)
}

// The method `look` reads the grants, but only once: when the first key is decided.
func (k *Keys) look() *Keys {
	if k.granted {
		return k
	}
	k.granted = true
	for _, g := range granted(k.fleet, k.groups) {
		k.read.add(g.Read...)
		k.read.add(g.Write...)
		for _, p := range g.Write {
			// The fleet file refuses a dangerous pattern without `dangerous: true`. The policy refuses it as well,
			// because some fleets come from an older release, or not from a file.
			if g.Dangerous || !tutti.DangerousPattern(p) {
				k.write.add(p)
			}
		}
	}
	return k
}

// patterns are patterns of keys (see tutti.MatchPattern). For the first few keys, each pattern is compared. For later
// keys, the key and each of its prefixes are looked up in maps.
type patterns struct {
	all           []string
	asked         int
	exact, begins map[string]bool // begins has `a/b/` for the pattern `a/b/**`
	others        []string
}

// fewKeys is the number of keys for which comparing is cheaper than making the maps.
const fewKeys = 8

func (ps *patterns) add(more ...string) { ps.all = append(ps.all, more...) }

// The method `cover` returns true if one of the patterns covers a key.
func (ps *patterns) cover(key string) bool {
	matches := func(p string) bool { return tutti.MatchPattern(p, key) }
	if ps.asked++; ps.asked <= fewKeys {
		return slices.ContainsFunc(ps.all, matches)
	}
	if ps.exact == nil {
		ps.index()
	}
	if ps.exact[key] || slices.ContainsFunc(ps.others, matches) {
		return true
	}
	for i := range max(len(key), 1) - 1 { // leave out a slash at the end of the key: `a/` does not match `a/**`
		if key[i] == '/' && ps.begins[key[:i+1]] {
			return true
		}
	}
	return false
}

func (ps *patterns) index() {
	ps.exact, ps.begins = map[string]bool{}, map[string]bool{}
	for _, p := range ps.all {
		prefix, deep := strings.CutSuffix(p, "**")
		switch {
		case !deep:
			ps.exact[p] = true
		case strings.HasSuffix(prefix, "/"):
			ps.begins[prefix] = true
		default:
			ps.others = append(ps.others, p)
		}
	}
}
