package data

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
)

// Bounds of a filter. The depth counts how often `and` and `or` alternate. A chain of a hundred `or` has depth 1,
// although Puppet writes it as a tree.
const (
	MaxFilter      = 64 << 10
	MaxFilterDepth = 32
)

// Filter is the compiled filter of a collector. A nil Filter accepts every export.
type Filter struct {
	op    string // =, !=, and, or
	name  string
	value json.RawMessage // canonical
	plain string          // the tag or title
	among []*Filter
	text  []byte // the normal form
}

// Normalize returns the normal form of a filter. Nested `and` in `and` and `or` in `or` are flattened. Operands are
// sorted and unique, and a list with one operand is replaced by this operand. Tags are in lower case, and values are
// canonical. Filters with the same normal form accept the same exports. For null and for an empty input, Normalize
// returns nil. Normalize returns CodeInvalid for an unknown operator, for a malformed operand, and for a filter that
// is too deep or too large.
func Normalize(raw json.RawMessage) (json.RawMessage, error) {
	f, err := ParseFilter(raw)
	if err != nil || f == nil {
		return nil, err
	}
	if len(f.text) > MaxFilter {
		return nil, tutti.Errorf(tutti.CodeInvalid, "filter: %d bytes in normal form, at most %d", len(f.text), MaxFilter)
	}
	return f.text, nil
}

// ParseFilter compiles a filter. The filter need not be in normal form. ParseFilter returns errors for the same
// filters as Normalize.
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
	return compile(value, 0)
}

func compile(value any, depth int) (*Filter, error) {
	list, ok := value.([]any)
	if !ok || len(list) == 0 {
		return nil, malformed(value, `a list like ["=", NAME, VALUE] is needed`)
	}
	switch op, _ := list[0].(string); op {
	case "=", "!=":
		return compileTest(op, list)
	case "and", "or":
		return compileAmong(op, list, depth+1)
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
		return nil, malformed(list, "a tag or title is compared only with text")
	}
	f := &Filter{op: op, name: name}
	if name == "tag" {
		f.plain = strings.ToLower(text)
		f.value = appendString(nil, f.plain)
		f.encode()
		return f, nil
	}
	canonical, err := appendCanonical(nil, list[2], 0)
	if err != nil {
		return nil, tutti.Wrap("", err, "filter")
	}
	f.value, f.plain = canonical, text
	f.encode()
	return f, nil
}

func compileAmong(op string, list []any, depth int) (*Filter, error) {
	if depth > MaxFilterDepth {
		return nil, tutti.Errorf(tutti.CodeInvalid, "filter: the operators `and` and `or` are nested more than %d deep", MaxFilterDepth)
	}
	f := &Filter{op: op}
	if err := f.gather(list, depth); err != nil {
		return nil, err
	}
	compare := func(a, b *Filter) int { return bytes.Compare(a.text, b.text) }
	slices.SortFunc(f.among, compare)
	f.among = slices.CompactFunc(f.among, func(a, b *Filter) bool { return compare(a, b) == 0 })
	if len(f.among) == 1 {
		return f.among[0], nil
	}
	f.encode()
	return f, nil
}

// The method `gather` adds the operands of a list. If an operand is itself a list with the same operator, the method
// adds the operands of that list instead. So a long chain is sorted only once, and not at every level.
func (f *Filter) gather(list []any, depth int) error {
	if len(list) < 2 {
		return malformed(list, "operands are needed")
	}
	for _, operand := range list[1:] {
		if inner, ok := operand.([]any); ok && len(inner) > 0 && inner[0] == f.op {
			if err := f.gather(inner, depth); err != nil {
				return err
			}
			continue
		}
		o, err := compile(operand, depth)
		switch {
		case err != nil:
			return err
		case o.op == f.op: // the operand was a list, and its only remaining operand has the operator of this list
			f.among = append(f.among, o.among...)
		default:
			f.among = append(f.among, o)
		}
	}
	return nil
}

func malformed(value any, want string) error {
	raw, err := json.Marshal(value)
	if err != nil { // cannot fail, because the value was decoded from JSON
		raw = []byte("?")
	}
	return tutti.Errorf(tutti.CodeInvalid, "filter: %s in %s", want, excerpt(raw))
}

func (f *Filter) encode() {
	out := appendString([]byte{'['}, f.op)
	if f.among == nil {
		out = appendString(append(out, ','), f.name)
		out = append(append(out, ','), f.value...)
	}
	for _, o := range f.among {
		out = append(append(out, ','), o.text...)
	}
	out = append(out, ']')
	f.text = out
}

// Match reports whether the filter accepts an export. Match has the semantics of PuppetDB. Values must be exactly
// equal, also in type and case. An array matches an equal array, but not a value that is one of its elements. Tags are
// compared in lower case. The operator != is also true if the export does not have the parameter. Match treats a
// sensitive parameter as missing. The parameters of the export must be canonical, and its tags must be sorted. Exports
// in a State are in this form.
func (f *Filter) Match(e tutti.Export) bool { return f == nil || f.match(&e) }

func (f *Filter) match(e *tutti.Export) bool {
	switch f.op {
	case "and":
		return !slices.ContainsFunc(f.among, func(o *Filter) bool { return !o.match(e) })
	case "or":
		return slices.ContainsFunc(f.among, func(o *Filter) bool { return o.match(e) })
	}
	return f.equal(e) == (f.op == "=")
}

// lookedAt is a number of bytes. The cost of a comparison increases by one for every `lookedAt` bytes of the filter's
// value.
const lookedAt = 256

// The method `steps` returns the largest cost of Match for one export. The result `each` is the number of comparisons
// for the export itself. The result `tags` is the number of comparisons for each step of a search in the export's
// tags.
func (f *Filter) steps() (each, tags int) {
	switch {
	case f == nil:
		return 0, 0
	case f.among == nil && f.name == "tag":
		return 0, 1 + len(f.value)/lookedAt
	case f.among == nil:
		return 1 + len(f.value)/lookedAt, 0
	}
	for _, o := range f.among {
		e, t := o.steps()
		each, tags = each+e, tags+t
	}
	return each, tags
}

func (f *Filter) equal(e *tutti.Export) bool {
	switch f.name {
	case "tag":
		_, found := slices.BinarySearch(e.Tags, f.plain)
		return found
	case "title":
		return e.Title == f.plain
	}
	value, ok := e.Parameters[f.name]
	return ok && bytes.Equal(value, f.value)
}
