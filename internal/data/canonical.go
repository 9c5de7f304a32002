package data

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
)

// MaxValueDepth is how deep the arrays and objects of a value may be nested.
const MaxValueDepth = 256

// Canonical returns the canonical encoding of a JSON value. Equal values have equal encodings, and different
// values have different encodings. The encoding follows RFC 8785, with two differences. Members are sorted
// by their UTF-8 bytes. A whole number stays a whole number of any size, because 1 and 1.0 differ in Puppet.
// Canonical returns CodeInvalid if the input is not JSON, is not UTF-8, or has a number beyond 64-bit
// floating point. If the input is already canonical, Canonical returns it without decoding it. Most values
// in the log were checked before, and decoding them again would take too long.
func Canonical(raw json.RawMessage) (json.RawMessage, error) {
	if isCanonical(raw) {
		return raw, nil
	}
	return canonical(raw)
}

func canonical(raw json.RawMessage) (json.RawMessage, error) {
	value, err := decode(raw)
	if err != nil {
		return nil, err
	}
	out, err := appendCanonical(nil, value, 0)
	if err != nil {
		return nil, err
	}
	return out, nil
}

// Equal reports whether two JSON values are equal. Invalid JSON is equal only to the same bytes.
func Equal(a, b json.RawMessage) bool {
	return bytes.Equal(canonicalOrRaw(a), canonicalOrRaw(b))
}

// canonicalOrRaw does the same as Canonical for values that are already in the log. canonicalOrRaw returns
// invalid JSON unchanged.
func canonicalOrRaw(raw json.RawMessage) json.RawMessage {
	if canonical, err := Canonical(raw); err == nil {
		return canonical
	}
	return raw
}

// The function `decode` decodes exactly one JSON value. Numbers keep their text.
func decode(raw json.RawMessage) (any, error) {
	if !utf8.Valid(raw) {
		return nil, tutti.Errorf(tutti.CodeInvalid, "JSON value %s: not UTF-8", excerpt(raw))
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber()
	var value any
	if err := decoder.Decode(&value); err != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "JSON value %s: %v", excerpt(raw), err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) {
		return nil, tutti.Errorf(tutti.CodeInvalid, "JSON value %s: more text follows the value", excerpt(raw))
	}
	return value, nil
}

func appendCanonical(out []byte, value any, depth int) ([]byte, error) {
	if depth > MaxValueDepth {
		return nil, tutti.Errorf(tutti.CodeInvalid, "JSON value: more than %d levels", MaxValueDepth)
	}
	var err error
	switch v := value.(type) {
	case nil:
		return append(out, "null"...), nil
	case bool:
		return strconv.AppendBool(out, v), nil
	case json.Number:
		return appendNumber(out, string(v))
	case string:
		return appendString(out, v), nil
	case []any:
		out = append(out, '[')
		for i, element := range v {
			if i > 0 {
				out = append(out, ',')
			}
			if out, err = appendCanonical(out, element, depth+1); err != nil {
				return nil, err
			}
		}
		return append(out, ']'), nil
	}
	members := value.(map[string]any) // encoding/json returns no other types
	out = append(out, '{')
	for i, name := range slices.Sorted(maps.Keys(members)) {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(appendString(out, name), ':')
		if out, err = appendCanonical(out, members[name], depth+1); err != nil {
			return nil, err
		}
	}
	return append(out, '}'), nil
}

// appendNumber appends a number in canonical form. appendNumber copies a whole number digit by digit.
// appendNumber writes any other number in the shortest form that gives the same 64-bit number, always with
// a point or an exponent.
func appendNumber(out []byte, text string) ([]byte, error) {
	if !strings.ContainsAny(text, ".eE") {
		if text == "-0" {
			text = "0"
		}
		return append(out, text...), nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil {
		return nil, tutti.Errorf(tutti.CodeInvalid, "JSON value: number %s is beyond 64-bit floating point", excerpt([]byte(text)))
	}
	if f == 0 {
		return append(out, "0.0"...), nil // also for -0.0, which is equal to 0.0
	}
	if magnitude := max(f, -f); magnitude < 1e-6 || magnitude >= 1e21 {
		short := strconv.FormatFloat(f, 'e', -1, 64)
		// Go writes exponents with at least two digits
		return append(out, strings.Replace(short, "e-0", "e-", 1)...), nil
	}
	start := len(out)
	out = strconv.AppendFloat(out, f, 'f', -1, 64)
	if !bytes.ContainsRune(out[start:], '.') {
		out = append(out, ".0"...)
	}
	return out, nil
}

const hexDigits = "0123456789abcdef"

// appendString escapes only the characters that JSON requires to be escaped.
func appendString(out []byte, s string) []byte {
	out = append(out, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c >= 0x20:
			out = append(out, c)
		case strings.IndexByte("\b\t\n\f\r", c) >= 0:
			out = append(out, '\\', "btn?fr"[c-'\b'])
		default:
			out = append(out, `\u00`...)
			out = append(out, hexDigits[c>>4], hexDigits[c&15])
		}
	}
	return append(out, '"')
}

// The function `excerpt` returns the beginning of an input in quotes, for an error message.
func excerpt(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return strconv.Quote(string(raw[:most])) + "…"
	}
	return strconv.Quote(string(raw))
}
