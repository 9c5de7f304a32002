package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"

	"github.com/tutti-project/tutti"
)

// maxElement is the largest export, read or key in a list, in bytes of JSON.
const maxElement = 2 << 20

// maxFields is the largest number of fields in one element, including the fields of its lists and objects. Each
// parameter and each tag is one field. The values of parameters are not decoded, so their parts do not count.
const maxFields = 2 * MaxParameters

// FirstOf decodes the first elements of a list, at most `most` elements. FirstOf does not decode the rest, because a
// few bytes of JSON can need much memory when decoded. The result `more` reports whether the list has further
// elements. FirstOf treats null and an empty input as the empty list.
func FirstOf[T any](what string, raw json.RawMessage, most int) (out []T, more bool, err error) {
	if len(raw) == 0 || string(raw) == "null" {
		return nil, false, nil
	}
	refuse := func(err error) ([]T, bool, error) { return nil, false, tutti.Wrap(tutti.CodeInvalid, err, "%s", what) }
	decoder := json.NewDecoder(bytes.NewReader(raw))
	if open, err := decoder.Token(); err != nil || open != json.Delim('[') {
		return refuse(errors.Join(err, errors.New("not a list")))
	}
	for decoder.More() {
		if len(out) == most {
			return out, true, nil
		}
		var one json.RawMessage
		if err := decoder.Decode(&one); err != nil && !errors.Is(err, io.EOF) {
			return refuse(err)
		}
		if len(one) > maxElement {
			return refuse(tutti.Errorf(tutti.CodeInvalid, "an element of %d bytes, at most %d", len(one), maxElement))
		}
		if fieldsOf(one) > maxFields {
			return refuse(tutti.Errorf(tutti.CodeInvalid, "an element with more than %d fields, parameters and tags", maxFields))
		}
		var element T
		if err := json.Unmarshal(one, &element); err != nil {
			return refuse(err)
		}
		out = append(out, element)
	}
	return out, false, nil
}

// fieldsOf counts the commas in valid JSON. fieldsOf does not count commas in strings, or in lists and objects nested
// deeper than two levels.
func fieldsOf(raw json.RawMessage) int {
	count, depth, quoted := 0, 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth <= 2:
			count++
		}
	}
	return count
}
