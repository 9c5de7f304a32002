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

// MaxValueDepth bounds how deep arrays and objects of a value nest.
const MaxValueDepth = 256

// Canonical returns the one encoding of a JSON value: equal values, and only
// those, have equal bytes. It is RFC 8785 with two differences. Members are sorted
// by their UTF-8 bytes. A number keeps whether it is whole, because 1 and 1.0
// differ in Puppet; whole numbers may have any size. CodeInvalid: the input is not
// JSON or not UTF-8, or has a number beyond 64-bit floating point. A canonical value is returned as it is:
// the fold sees values that were checked before, and has no time to decode them.
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

// Equal reports whether two JSON values are equal. Invalid JSON equals only
// the same bytes.
func Equal(a, b json.RawMessage) bool {
	return bytes.Equal(canonicalOrRaw(a), canonicalOrRaw(b))
}

// canonicalOrRaw is Canonical for values that are in the log already. It returns invalid JSON as it is.
func canonicalOrRaw(raw json.RawMessage) json.RawMessage {
	if canonical, err := Canonical(raw); err == nil {
		return canonical
	}
	return raw
}

// decode reads exactly one JSON value; numbers keep their text.
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
		return nil, tutti.Errorf(tutti.CodeInvalid, "JSON value %s: something follows it", excerpt(raw))
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
	members := value.(map[string]any) // encoding/json makes no other types
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

// appendNumber writes whole numbers digit by digit, others in the shortest form
// that reads back as the same 64-bit number, always with a point or an exponent.
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
		return append(out, "0.0"...), nil // also for -0.0: the two are equal
	}
	if magnitude := max(f, -f); magnitude < 1e-6 || magnitude >= 1e21 {
		short := strconv.FormatFloat(f, 'e', -1, 64)
		return append(out, strings.Replace(short, "e-0", "e-", 1)...), nil // Go has two digits at least
	}
	start := len(out)
	out = strconv.AppendFloat(out, f, 'f', -1, 64)
	if !bytes.ContainsRune(out[start:], '.') {
		out = append(out, ".0"...)
	}
	return out, nil
}

const hexDigits = "0123456789abcdef"

// appendString escapes only what JSON requires.
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

// excerpt quotes the beginning of an input for a message.
func excerpt(raw []byte) string {
	const most = 60
	if len(raw) > most {
		return strconv.Quote(string(raw[:most])) + "…"
	}
	return strconv.Quote(string(raw))
}
