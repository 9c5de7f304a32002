package data

import (
	"bytes"
	"encoding/json"
	"strconv"
	"unicode/utf8"
)

// isCanonical reports whether a text is the canonical encoding of a value. isCanonical does not decode the text,
// because decoding one megabyte may create a million lists.
func isCanonical(raw []byte) bool {
	rest, is := afterValue(raw, 0)
	return is && len(rest) == 0 && utf8.Valid(raw)
}

// afterValue returns the text after the canonical value at the beginning of raw. afterValue returns false if there is
// no canonical value.
func afterValue(raw []byte, depth int) (rest []byte, is bool) {
	if len(raw) == 0 || depth > MaxValueDepth {
		return nil, false
	}
	switch raw[0] {
	case '"':
		_, rest, is = cutString(raw)
		return rest, is
	case '[':
		return afterItems(raw[1:], ']', depth+1)
	case '{':
		return afterItems(raw[1:], '}', depth+1)
	case 't':
		return bytes.CutPrefix(raw, []byte("true"))
	case 'f':
		return bytes.CutPrefix(raw, []byte("false"))
	case 'n':
		return bytes.CutPrefix(raw, []byte("null"))
	}
	return afterNumber(raw)
}

// afterItems returns the text after the items of a list or an object. The list or object ends with the character
// `end`. The names in an object must be sorted and unique.
func afterItems(raw []byte, end byte, depth int) (rest []byte, is bool) {
	if len(raw) > 0 && raw[0] == end {
		return raw[1:], true
	}
	var last []byte
	for {
		if end == '}' {
			name, rest, is := cutString(raw)
			if !is || len(rest) == 0 || rest[0] != ':' || last != nil && bytes.Compare(unescaped(last), unescaped(name)) >= 0 {
				return nil, false
			}
			last, raw = name, rest[1:]
		}
		if raw, is = afterValue(raw, depth); !is || len(raw) == 0 {
			return nil, false
		}
		switch raw[0] {
		case end:
			return raw[1:], true
		case ',':
			raw = raw[1:]
		default:
			return nil, false
		}
	}
}

// The function `unescaped` returns the text of a quoted string without escapes.
func unescaped(quoted []byte) []byte {
	if !bytes.ContainsRune(quoted, '\\') {
		return quoted[1 : len(quoted)-1]
	}
	var text string
	_ = json.Unmarshal(quoted, &text) // cannot fail, because cutString has checked the string
	return []byte(text)
}

// cutString splits raw into a canonical string, with its quotes, and the text after it. Only characters that JSON
// requires to be escaped may be escaped.
func cutString(raw []byte) (quoted, rest []byte, is bool) {
	if len(raw) == 0 || raw[0] != '"' {
		return nil, nil, false
	}
	for i := 1; i < len(raw); i++ {
		switch c := raw[i]; {
		case c == '"':
			return raw[:i+1], raw[i+1:], true
		case c < ' ':
			return nil, nil, false
		case c == '\\':
			n := escape(raw[i:])
			if n == 0 {
				return nil, nil, false
			}
			i += n - 1
		}
	}
	return nil, nil, false
}

// The function `escape` returns the length of the canonical escape at the beginning of raw, or 0 if there is none.
func escape(raw []byte) int {
	if len(raw) < len(`\n`) {
		return 0
	}
	if bytes.IndexByte([]byte(`"\btnfr`), raw[1]) >= 0 {
		return len(`\n`)
	}
	const long = len(`\u0000`)
	if len(raw) < long || string(raw[:4]) != `\u00` {
		return 0
	}
	c, err := strconv.ParseUint(string(raw[4:long]), 16, 8)
	if err != nil || string(appendString(make([]byte, 0, 8), string(rune(c)))[1:]) != string(raw[:long])+`"` {
		return 0
	}
	return long
}

// afterNumber does the same as afterValue for a number.
func afterNumber(raw []byte) (rest []byte, is bool) {
	end := 0
	for end < len(raw) && bytes.IndexByte([]byte("+-.0123456789e"), raw[end]) >= 0 {
		end++
	}
	text, rest := raw[:end], raw[end:]
	if bytes.ContainsAny(text, ".e") {
		var form [64]byte
		out, err := appendNumber(form[:0], string(text))
		return rest, err == nil && bytes.Equal(out, text)
	}
	digits, negative := bytes.CutPrefix(text, []byte("-"))
	if len(digits) == 0 || bytes.ContainsAny(digits, "+-") || digits[0] == '0' && (len(digits) > 1 || negative) {
		return nil, false
	}
	return rest, true
}
