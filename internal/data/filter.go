package data

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Bounds of a filter. The depth counts how often and and or alternate: a chain of
// a hundred ors, which Puppet writes as a tree, has depth 1.
const (
	MaxFilter      = 64 << 10
	MaxFilterDepth = 32
)

// Filter is a compiled filter of a collector. A nil Filter lets everything pass.
type Filter struct {
	op    string // =, !=, and, or
	name  string
	value json.RawMessage // canonical
	tag   string
	among []*Filter
}

// Normalize returns the normal form of a filter: and and or flattened, their
// operands sorted and unique, one that has a single operand replaced by it, tags
// in lower case, values canonical. Filters of equal normal form pass the same
// exports. null and nothing give nothing. CodeInvalid: an unknown operator,
// a malformed operand, too deep or too large.
func Normalize(raw json.RawMessage) (json.RawMessage, error) {
	f, err := ParseFilter(raw)
	if err != nil || f == nil {
		return nil, err
	}
	normal := f.encode(nil)
	if len(normal) > MaxFilter {
		return nil, tutti.Errorf(tutti.CodeInvalid, "filter: %d bytes in normal form, at most %d", len(normal), MaxFilter)
	}
	return normal, nil
}

// ParseFilter compiles a filter, which need not be in normal form. It refuses
// what Normalize refuses.
func ParseFilter(raw json.RawMessage) (*Filter, error) {
	if len(raw) > MaxFilter {
		return nil, tutti.Errorf(tutti.CodeInvalid, "filter: %d bytes, at most %d", len(raw), MaxFilter)
	}
	if len(raw) == 0 {
		return nil, nil
	}
	value, err := decode(raw)
	if err != nil {
		return nil, tutti.Wrap("", err, "filter")
	}
	if value == nil {
		return nil, nil
	}
	f, err := compile(value)
	if err != nil {
		return nil, err
	}
	if f.depth() > MaxFilterDepth {
		return nil, tutti.Errorf(tutti.CodeInvalid, "filter: and and or nest more than %d deep", MaxFilterDepth)
	}
	return f, nil
}

func compile(value any) (*Filter, error) {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return nil, malformed(value, `a list like ["=", NAME, VALUE] is needed`)
	}
	switch op, _ := list[0].(string); op {
	case "=", "!=":
		return compileTest(op, list)
	case "and", "or":
		return compileAmong(op, list)
	}
	return nil, malformed(value, "the operators are =, !=, and, or")
}

func compileTest(op string, list []any) (*Filter, error) {
	if len(list) != 3 {
		return nil, malformed(list, "a name and a value are needed")
	}
	name, ok := list[1].(string)
	if !ok || name == "" {
		return nil, malformed(list, "the name of a parameter, tag or title is needed")
	}
	text, isText := list[2].(string)
	if !isText && (name == "tag" || name == "title") {
		return nil, malformed(list, "tag and title are compared with text")
	}
	f := &Filter{op: op, name: name}
	if name == "tag" {
		f.tag = strings.ToLower(text)
		f.value = appendString(nil, f.tag)
		return f, nil
	}
	canonical, err := appendCanonical(nil, list[2], 0)
	if err != nil {
		return nil, tutti.Wrap("", err, "filter")
	}
	f.value = canonical
	return f, nil
}

func compileAmong(op string, list []any) (*Filter, error) {
	if len(list) < 2 {
		return nil, malformed(list, "operands are needed")
	}
	f := &Filter{op: op}
	for _, operand := range list[1:] {
		o, err := compile(operand)
		switch {
		case err != nil:
			return nil, err
		case o.op == op:
			f.among = append(f.among, o.among...)
		default:
			f.among = append(f.among, o)
		}
	}
	slices.SortFunc(f.among, compareFilters)
	f.among = slices.CompactFunc(f.among, func(a, b *Filter) bool { return compareFilters(a, b) == 0 })
	if len(f.among) == 1 {
		return f.among[0], nil
	}
	return f, nil
}

func compareFilters(a, b *Filter) int { return bytes.Compare(a.encode(nil), b.encode(nil)) }

func malformed(value any, want string) error {
	raw, err := json.Marshal(value)
	if err != nil { // what was decoded can be encoded
		raw = []byte("?")
	}
	return tutti.Errorf(tutti.CodeInvalid, "filter: %s in %s", want, excerpt(raw))
}

func (f *Filter) depth() int {
	deepest := 0
	for _, o := range f.among {
		deepest = max(deepest, o.depth())
	}
	if f.among == nil {
		return 0
	}
	return deepest + 1
}

func (f *Filter) encode(out []byte) []byte {
	out = appendString(append(out, '['), f.op)
	if f.among == nil {
		out = appendString(append(out, ','), f.name)
		out = append(append(out, ','), f.value...)
	}
	for _, o := range f.among {
		out = o.encode(append(out, ','))
	}
	return append(out, ']')
}

// Match reports whether an export passes, with the semantics of PuppetDB: values
// are compared exactly, with their type and case; an array is equal to an equal
// array only, not to its elements; tags are compared in lower case; != is true
// also where there is no such parameter. A sensitive parameter is as if it were
// not there. The export's parameters must be canonical, as those of a State are.
func (f *Filter) Match(e tutti.Export) bool {
	if f == nil {
		return true
	}
	switch f.op {
	case "and":
		return !slices.ContainsFunc(f.among, func(o *Filter) bool { return !o.Match(e) })
	case "or":
		return slices.ContainsFunc(f.among, func(o *Filter) bool { return o.Match(e) })
	}
	return f.equal(e) == (f.op == "=")
}

func (f *Filter) equal(e tutti.Export) bool {
	switch f.name {
	case "tag":
		return slices.Contains(e.Tags, f.tag)
	case "title":
		return bytes.Equal(appendString(nil, e.Title), f.value)
	}
	value, ok := e.Parameters[f.name]
	return ok && bytes.Equal(value, f.value)
}
