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

// The function `collector` writes a query for exports in the syntax of Puppet's collectors. If the
// filter is invalid, the text contains the filter unchanged. The text is safe for a terminal, even
// if the node's query was hostile.
func collector(typ string, filter json.RawMessage) string {
	if len(filter) == 0 {
		return typ + " <<| |>>"
	}
	text, ok := "", false
	dec := json.NewDecoder(bytes.NewReader(filter))
	dec.UseNumber() // so 1 and 1.0 stay different in the text
	var value any
	if dec.Decode(&value) == nil {
		text, ok = condition(value, "")
	}
	if !ok {
		text = puppetString(string(filter))
	}
	return typ + " <<| " + text + " |>>"
}

// The function `condition` writes a filter. An operand gets parentheses if the query would have another meaning without
// them, because `and` binds tighter than `or`.
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

// puppetString writes a string between single quotes. puppetString uses double quotes if some characters can be escaped
// only between double quotes.
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
