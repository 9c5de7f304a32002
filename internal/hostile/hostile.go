// Package hostile makes hostile input of honest input, for fuzz tests. The bytes
// that a fuzzer changes are rarely JSON any more; what is changed here still is,
// and so comes further.
package hostile

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

// Mangle returns JSON in which the seed has changed one to three parts; the same
// seed changes the same parts. Seed 0, and what is no JSON, stay as they are.
func Mangle(raw []byte, seed uint64) []byte {
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if seed == 0 || decoder.Decode(&value) != nil {
		return raw
	}
	m := mangler{rand.New(rand.NewPCG(seed, 0))}
	for range 1 + m.IntN(3) {
		value = m.somewhere(value)
	}
	out, err := json.Marshal(value)
	if err != nil { // a fragment that is no JSON
		return raw
	}
	return out
}

type mangler struct{ *rand.Rand }

// somewhere changes the value itself or something in it.
func (m mangler) somewhere(value any) any {
	if m.IntN(4) == 0 {
		return m.replace(value)
	}
	switch v := value.(type) {
	case []any:
		if len(v) > 0 {
			i := m.IntN(len(v))
			v[i] = m.somewhere(v[i])
			return v
		}
	case map[string]any:
		if len(v) > 0 {
			name := m.name(v)
			v[name] = m.somewhere(v[name])
			return v
		}
	}
	return m.replace(value)
}

func (m mangler) name(object map[string]any) string {
	names := make([]string, 0, len(object))
	for n := range object {
		names = append(names, n)
	}
	slices.Sort(names) // or a seed would not say all
	return names[m.IntN(len(names))]
}

// replace returns something else, often of the same type.
func (m mangler) replace(value any) any {
	switch v := value.(type) {
	case []any:
		return m.list(v)
	case map[string]any:
		return m.object(v)
	case string:
		if m.IntN(2) == 0 {
			return m.text(v)
		}
	}
	return fragments[m.IntN(len(fragments))]
}

func (m mangler) list(v []any) any {
	switch {
	case len(v) == 0 || m.IntN(4) == 0:
		return fragments[m.IntN(len(fragments))]
	case m.IntN(3) == 0:
		return slices.Delete(v, 0, 1+m.IntN(len(v)))
	case m.IntN(2) == 0:
		return append(v, v[m.IntN(len(v))])
	}
	slices.Reverse(v)
	return slices.Repeat(v, m.times(len(v), 30))
}

// times is how often something is repeated: a few times, or until it is large, but
// no repetition of repetitions is beyond measure.
func (m mangler) times(size, most int) int {
	const large = 16 << 10
	return max(1, min(1+m.IntN(most), large/max(1, size)))
}

func (m mangler) object(v map[string]any) any {
	if len(v) == 0 || m.IntN(4) == 0 {
		return fragments[m.IntN(len(fragments))]
	}
	name := m.name(v)
	switch m.IntN(3) {
	case 0:
		delete(v, name)
	case 1:
		v[strings.ToUpper(name)] = fragments[m.IntN(len(fragments))]
	default:
		v[name] = v[m.name(v)]
	}
	return v
}

func (m mangler) text(v string) string {
	switch m.IntN(6) {
	case 0:
		return v + Texts[m.IntN(len(Texts))]
	case 1:
		return v[:m.IntN(len(v)+1)]
	case 2:
		return strings.ToUpper(v)
	case 3:
		return strings.Repeat(v, m.times(len(v), 200))
	}
	return Texts[m.IntN(len(Texts))]
}

// Texts are what a text can be to harm whoever believes it.
var Texts = []string{
	"", " ", "\x00", "\x1b]0;x\a", "\u202e", "\ufffd", "\n", "..", "../../etc/passwd", "/etc/passwd", "**", "*", "node/db-01/x",
	"node/web-01/hiera/x", "shared/hiera/x", "Exec", "Database", "$1", "%s%n", "sha256:", "sha256:" + strings.Repeat("0", 64),
	"00000000-0000-4000-8000-000000000000", "go", "stop", "lost", "skipped", "changed", "compile", "apply", "0001-01-01T00:00:00Z",
	"9999-12-31T23:59:59-23:59", strings.Repeat("a", 5000), strings.Repeat("ä", 300),
}

// fragments are values that are hard to decode, or mean something else. They are
// encoded: nobody changes them.
var fragments = encoded(
	"null", "true", "false", `""`, "0", "-0", "-1", "1.0", "1e400", "1e-400", "-9223372036854775808", "18446744073709551616",
	"1"+strings.Repeat("0", 400), "[]", "{}", "[null]", "[[]]", `{"":null}`, `["=","a",1]`, `{"a":1,"a":2,"A":3}`, `"\ud800"`,
	strings.Repeat("[", 400)+strings.Repeat("]", 400), strings.Repeat(`{"a":`, 300)+"1"+strings.Repeat("}", 300),
)

func encoded(texts ...string) []json.RawMessage {
	out := make([]json.RawMessage, len(texts))
	for i, t := range texts {
		out[i] = json.RawMessage(t)
	}
	return out
}
