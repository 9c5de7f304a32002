package policy

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
)

// Inspected is an export with all properties of its values that the decisions need. A value may have a megabyte, and
// one export may be checked against many grants. So Inspect reads the values only once.
type Inspected struct {
	tutti.Export
	calls   []string // parameters whose value is not only data
	control bool     // a text in a value contains a control character
	tags    []string // sorted, including the tags from the parameter tag
	named   []string // tags that Puppet makes from type and title
	bytes   int      // see Bytes
}

// Inspect reads the values of exports, each once. After that, a check costs only about as much as
// the number of parameters and tags.
func Inspect(exports []tutti.Export) []Inspected {
	out := make([]Inspected, len(exports))
	for i, e := range exports {
		out[i] = inspect(e)
	}
	return out
}

func inspect(e tutti.Export) Inspected {
	out := Inspected{Export: e, bytes: Bytes(e)}
	out.tags = slices.Concat(e.Tags, tagsOf(e.Parameters["tag"]))
	slices.Sort(out.tags)
	out.tags = slices.Compact(out.tags)
	name := strings.ToLower(e.Type)
	out.named = append(strings.Split(name, "::"), name, strings.ToLower(e.Title))
	for p, value := range e.Parameters {
		calls, control := look(value)
		if calls {
			out.calls = append(out.calls, p)
		}
		out.control = out.control || control
	}
	slices.Sort(out.calls)
	return out
}

// isData reports whether the value of a parameter is only data at every depth.
func (e Inspected) isData(parameter string) bool {
	_, calls := slices.BinarySearch(e.calls, parameter)
	return !calls
}

// Bytes returns how many bytes of text an export has. A collecting node gets about this many bytes.
func Bytes(e tutti.Export) int {
	n := len(e.Type) + len(e.Title) + len(e.File)
	for _, list := range [][]string{e.Tags, e.Sensitive} {
		for _, text := range list {
			n += len(text)
		}
	}
	for name, value := range e.Parameters {
		n += len(name) + len(value)
	}
	return n
}

// The function `look` returns whether a value in rich data contains anything other than data (for example a Deferred,
// which is a call). The function also returns whether a text in the value has a control character. For invalid JSON,
// look returns true for both. The function does not decode the value, because a value of a megabyte can contain a
// million lists.
func look(value json.RawMessage) (calls, control bool) {
	typed, escaped := bytes.Contains(value, []byte("__p")), bytes.ContainsRune(value, '\\')
	if !typed && !escaped && !mayControl(value) {
		return false, false
	}
	if !json.Valid(value) {
		return typed || escaped, true
	}
	return texts(value)
}

// mayControl quickly checks whether UTF-8 text may contain a control character. The function also returns true
// for a value with several lines.
func mayControl(value []byte) bool {
	for _, c := range value {
		if c < ' ' || c == 0x7f || c == 0xc2 { // 0xc2 is the first byte of U+0080 to U+009f
			return true
		}
	}
	return false
}

// The function `texts` does the same as the function look, but only for valid JSON.
func texts(value []byte) (calls, control bool) {
	kind := false // the last text was a key that names a type
	for i := 0; i < len(value); i++ {
		switch c := value[i]; c {
		case ':', ' ', '\t', '\n', '\r':
			continue
		case '"':
		default:
			calls = calls || kind // the name of a type must be a text
			kind = false
			continue
		}
		end := i + 1
		for value[end] != '"' {
			if value[end] == '\\' {
				end++
			}
			end++
		}
		text := value[i+1 : end]
		control = control || controls(text)
		if kind {
			// A type name with an escape does not count as a data type.
			calls, kind = calls || !isDataType(string(text)), false
		} else if follows(value[end+1:], ':') {
			kind = isKind(text)
		}
		i = end
	}
	return calls, control
}

// The function `follows` returns true if `c` is the next character after white space.
func follows(rest []byte, c byte) bool {
	rest = bytes.TrimLeft(rest, " \t\n\r")
	return len(rest) > 0 && rest[0] == c
}

const kindKey = "__ptype"

// isKind reports whether the text between quotes is a key that names a type.
func isKind(text []byte) bool {
	if len(text) == len(kindKey) {
		return string(text) == kindKey
	}
	if len(text) > len(`\u0000`)*len(kindKey) || !bytes.ContainsRune(text, '\\') {
		return false
	}
	var plain string
	return json.Unmarshal(slices.Concat([]byte{'"'}, text, []byte{'"'}), &plain) == nil && plain == kindKey
}

// The function `controls` returns true if the text between quotes contains a control character.
func controls(text []byte) bool {
	for i := 0; i < len(text); {
		if text[i] != '\\' {
			r, size := utf8.DecodeRune(text[i:])
			if unicode.IsControl(r) {
				return true
			}
			i += size
			continue
		}
		switch text[i+1] {
		case 'b', 'f', 'n', 'r', 't':
			return true
		case 'u':
			if r, err := strconv.ParseUint(string(text[i+2:i+6]), 16, 32); err != nil || unicode.IsControl(rune(r)) {
				return true
			}
			i += len(`\u0000`)
		default:
			i += len(`\n`)
		}
	}
	return false
}
