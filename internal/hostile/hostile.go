// Package hostile turns honest input into hostile input for fuzz tests. If a fuzzer changes
// single bytes, the result is rarely JSON. Package hostile changes JSON into other JSON, so
// that the input gets further into the program.
package hostile

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
)

// Mangle returns JSON in which it has changed one to three parts. The same seed changes the same
// parts. With the seed 0, or if the input is not JSON, Mangle changes nothing.
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
	if err != nil { // a fragment that is not JSON
		return raw
	}
	return out
}

type mangler struct{ *rand.Rand }

// The method `somewhere` changes the value itself or a part of it.
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
	slices.Sort(names) // without a fixed order, a seed would give different results
	return names[m.IntN(len(names))]
}

// The method `replace` returns another value, often of the same type.
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

// The method `times` returns how often a part is repeated. The number is small, or large enough to make the result
// large. A part may be the result of an earlier repetition. The same limit holds for the whole result.
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

// Texts are texts that can harm a program which trusts them.
var Texts = []string{
	"", " ", "\x00", "\x1b]0;x\a", "\u202e", "\ufffd", "\n", "..", "../../etc/passwd", "/etc/passwd", "**", "*", "node/db-01/x",
	"node/web-01/hiera/x", "shared/hiera/x", "Exec", "Database", "$1", "%s%n", "sha256:", "sha256:" + strings.Repeat("0", 64),
	"00000000-0000-4000-8000-000000000000", "go", "stop", "lost", "skipped", "changed", "compile", "apply", "0001-01-01T00:00:00Z",
	"9999-12-31T23:59:59-23:59", strings.Repeat("a", 5000), strings.Repeat("ä", 300),
}

// The list `fragments` contains values that are hard to decode, or that programs misunderstand. They are encoded
// values, and no code changes them.
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
