package tutti

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// collector writes a question for exports as Puppet does. An invalid filter is
// shown unchanged. The text is fit for a terminal, whatever a node has asked.
func collector(typ string, filter json.RawMessage) string {
	if len(filter) == 0 {
		return typ + " <<| |>>"
	}
	text, ok := "", false
	dec := json.NewDecoder(bytes.NewReader(filter))
	dec.UseNumber() // 1 and 1.0 are written as they were
	var value any
	if dec.Decode(&value) == nil {
		text, ok = condition(value, "")
	}
	if !ok {
		text = puppetString(string(filter))
	}
	return typ + " <<| " + text + " |>>"
}

// condition writes a filter, in parentheses where it is an operand and would
// otherwise mean something else: and binds tighter than or.
func condition(filter any, inside string) (string, bool) {
	list, _ := filter.([]any)
	if len(list) < 2 {
		return "", false
	}
	op, _ := list[0].(string)
	switch op {
	case "=", "!=":
		name, ok := list[1].(string)
		if !ok || len(list) != 3 {
			return "", false
		}
		if op == "=" {
			op = "=="
		}
		return puppetName(name) + " " + op + " " + puppetValue(list[2]), true
	case "and", "or":
		parts := make([]string, 0, len(list)-1)
		for _, operand := range list[1:] {
			part, ok := condition(operand, op)
			if !ok {
				return "", false
			}
			parts = append(parts, part)
		}
		text := strings.Join(parts, " "+op+" ")
		if op == "or" && inside == "and" {
			text = "(" + text + ")"
		}
		return text, true
	}
	return "", false
}

var parameterRE = regexp.MustCompile(`^[a-z][A-Za-z0-9_]*$`)

func puppetName(name string) string {
	if parameterRE.MatchString(name) {
		return name
	}
	return puppetString(name)
}

// puppetValue writes a JSON value in Puppet's language.
func puppetValue(value any) string {
	switch v := value.(type) {
	case nil:
		return "undef"
	case string:
		return puppetString(v)
	case []any:
		parts := make([]string, len(v))
		for i, element := range v {
			parts[i] = puppetValue(element)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case map[string]any:
		var parts []string
		for _, key := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, puppetString(key)+" => "+puppetValue(v[key]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return fmt.Sprint(value) // numbers and bools
}

// puppetString writes a string between single quotes, or between double quotes if it
// has characters that only double quotes can escape.
func puppetString(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(s) + "'"
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '"' || r == '\\' || r == '$':
			b.WriteString(`\` + string(r))
		case unicode.IsPrint(r):
			b.WriteRune(r)
		default:
			fmt.Fprintf(&b, `\u{%x}`, r)
		}
	}
	return `"` + b.String() + `"`
}
