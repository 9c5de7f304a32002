package fleet

import (
	"encoding/json"
	"math"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxDepth and maxNodes limit a value. Without these limits, an alias could contain itself, or could stand for more
// values than fit into memory.
const (
	maxDepth = 32
	maxNodes = 10_000
)

// The method `json` returns a YAML value as JSON. Numbers keep their type, because 1 and 1.0 are different values in
// Puppet.
func (r *reader) json(n *yaml.Node, what string) json.RawMessage {
	w := writer{reader: r, what: what, left: maxNodes}
	if !w.value(n, maxDepth) {
		return nil
	}
	return json.RawMessage(w.out.String())
}

type writer struct {
	*reader
	what string
	left int
	out  strings.Builder
}

// The method `value` appends a value and reports whether the value is valid.
func (w *writer) value(n *yaml.Node, depth int) bool {
	n = follow(n)
	if w.left--; w.left < 0 || depth == 0 {
		w.report(n, "", "%s: at most %d levels and %d elements", w.what, maxDepth, maxNodes)
		return false
	}
	switch n.Kind {
	case yaml.ScalarNode:
		return w.scalar(n)
	case yaml.SequenceNode:
		w.out.WriteByte('[')
		for i, element := range n.Content {
			w.comma(i)
			if !w.value(element, depth-1) {
				return false
			}
		}
		w.out.WriteByte(']')
		return true
	default: // a mapping, or a wrong type, which `entries` reports
	}
	entries, ok := w.entries(n, w.what)
	w.out.WriteByte('{')
	for i, e := range entries {
		w.comma(i)
		w.string(e.key.string)
		w.out.WriteByte(':')
		if !w.value(e.value, depth-1) {
			return false
		}
	}
	w.out.WriteByte('}')
	return ok
}

func (w *writer) comma(i int) {
	if i > 0 {
		w.out.WriteByte(',')
	}
}

func (w *writer) string(s string) {
	encoded, _ := json.Marshal(s) // every string can be encoded
	w.out.Write(encoded)
}

func (w *writer) scalar(n *yaml.Node) bool {
	switch n.ShortTag() {
	case "!!null":
		w.out.WriteString("null")
	case "!!bool":
		var value bool
		if n.Decode(&value) != nil { // the tag says bool, but the text is not a bool
			w.report(n, "quote it if it is text", "%s: %q is not true or false", w.what, n.Value)
			return false
		}
		w.out.WriteString(strconv.FormatBool(value))
	case "!!int", "!!float":
		return w.number(n)
	default:
		w.string(n.Value)
	}
	return true
}

var decimalRE = regexp.MustCompile(`^(0|-?[1-9][0-9]*)$`)

func (w *writer) number(n *yaml.Node) bool {
	var whole int64
	var real float64
	switch {
	case decimalRE.MatchString(n.Value):
		if _, err := strconv.ParseInt(n.Value, 10, 64); err != nil {
			w.report(n, "quote it if it is text", "%s: integer %s is outside the range of Puppet, %d to %d", w.what, n.Value, math.MinInt64, math.MaxInt64)
			return false
		}
		w.out.WriteString(n.Value)
	case n.ShortTag() == "!!int" && n.Decode(&whole) == nil: // for example 0x10 or 1_000
		w.out.WriteString(strconv.FormatInt(whole, 10))
	case n.Decode(&real) == nil && !math.IsNaN(real) && !math.IsInf(real, 0):
		text := strconv.FormatFloat(real, 'g', -1, 64)
		if !strings.ContainsAny(text, ".e") {
			text += ".0"
		}
		w.out.WriteString(text)
	default:
		w.report(n, "quote it if it is text", "%s: %s is not a JSON number", w.what, n.Value)
		return false
	}
	return true
}
