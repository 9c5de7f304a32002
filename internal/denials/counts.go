package denials

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
)

const (
	maxCounted = 1024 // names that have their own count
	maxShown   = 3    // names in a text, the most frequent ones
	maxName    = 80   // bytes of a name in a text
)

// The type `counts` stores how often each name occurred. It stores at most maxCounted names, however many occur.
type counts struct {
	total int
	of    map[string]int // at most maxCounted names; other names count only in `total`
}

func (c *counts) add(name string) {
	c.total++
	if _, known := c.of[name]; !known && len(c.of) >= maxCounted {
		return
	}
	if c.of == nil {
		c.of = map[string]int{}
	}
	c.of[name]++
}

// String lists the most frequent names, with their counts if there are several. String also
// shows the number of all other attempts.
func (c *counts) String() string {
	names := sorted(c.of)
	slices.SortStableFunc(names, func(a, b string) int { return cmp.Compare(c.of[b], c.of[a]) })
	if len(names) == 1 && c.of[names[0]] == c.total {
		return cut(names[0])
	}
	var out []string
	others := c.total
	for _, name := range names[:min(len(names), maxShown)] {
		out = append(out, fmt.Sprintf("%s (%d)", cut(name), c.of[name]))
		others -= c.of[name]
	}
	if others > 0 {
		out = append(out, fmt.Sprintf("others (%d)", others))
	}
	return strings.Join(out, ", ")
}

func cut(name string) string {
	if len(name) <= maxName {
		return name
	}
	return strings.ToValidUTF8(name[:maxName], "") + "…"
}

// sourceOf returns the source under which attempts of strangers are counted. For an address the source
// is its network, because one machine may have 2^64 IPv6 addresses. For other names the source is the kind of the name.
func sourceOf(who string) string {
	kind, name, _ := strings.Cut(who, ":")
	addr, err := netip.ParseAddr(name)
	if err != nil {
		return kind
	}
	addr = addr.Unmap().WithZone("")
	bits := 24
	if addr.Is6() {
		bits = 64
	}
	prefix, err := addr.Prefix(bits)
	if err != nil {
		return kind
	}
	return kind + ":" + prefix.String()
}

func sorted[K cmp.Ordered, V any](of map[K]V) []K { return slices.Sorted(maps.Keys(of)) }
