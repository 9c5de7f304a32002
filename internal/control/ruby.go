package control

import (
	"fmt"
	"strings"

	"github.com/tutti-project/tutti"
)

// The type `call` is a call of a method with constant arguments, as Ruby's syntax has it.
type call struct {
	name    string
	line    int
	words   []string          // the arguments before the options; a symbol has its colon
	options map[string]string // `:key => value` and `key: value`; a symbol as value has its colon
}

// token is a word of Ruby.
type token struct {
	kind byte // 'w' word, 's' text in quotes, ':' symbol, 'k' key with a colon after it, 'h' for =>, ',', '\n', or another character
	text string
	line int
}

// rubyCalls reads calls with constant arguments, one after the other. A call ends at the end of a line that does not end
// in a comma or in =>.
func rubyCalls(name, source string) ([]call, error) {
	tokens, err := rubyTokens(name, source)
	if err != nil {
		return nil, err
	}
	var out []call
	for i := 0; i < len(tokens); {
		if tokens[i].kind == '\n' {
			i++
			continue
		}
		c, next, err := rubyCall(tokens, i)
		if err != nil {
			return nil, tutti.Errorf(tutti.CodeInvalid, "%s:%d: %s", name, tokens[min(next, len(tokens)-1)].line, err)
		}
		out, i = append(out, c), next
	}
	return out, nil
}

// rubyCall reads the call that begins at a token. It returns the index after the call, or of the token that is wrong.
func rubyCall(tokens []token, i int) (call, int, error) {
	const only = "only forge, moduledir and mod with constant arguments are understood; run r10k and push its directory: tutti code push --environment NAME --path DIR"
	c := call{name: tokens[i].text, line: tokens[i].line, options: map[string]string{}}
	if tokens[i].kind != 'w' {
		return c, i, fmt.Errorf("%q is not understood: %s", tokens[i].text, only)
	}
	value := func(t token) (string, bool) {
		switch {
		case t.kind == 's':
			return t.text, true
		case t.kind == ':':
			return ":" + t.text, true
		case t.kind == 'w' && (t.text == "true" || t.text == "false"):
			return t.text, true
		}
		return "", false
	}
	closes := false
	if i++; i < len(tokens) && tokens[i].kind == '(' {
		closes, i = true, i+1
	}
	for i < len(tokens) && tokens[i].kind != '\n' {
		for closes && i < len(tokens) && tokens[i].kind == '\n' {
			i++
		}
		t := tokens[i]
		key, isKey := "", false
		switch {
		case t.kind == 'k':
			key, isKey, i = t.text, true, i+1
		case (t.kind == ':' || t.kind == 's') && i+1 < len(tokens) && tokens[i+1].kind == 'h':
			key, isKey, i = t.text, true, i+2
		}
		for i < len(tokens) && isKey && tokens[i].kind == '\n' {
			i++
		}
		if i >= len(tokens) {
			return c, i, fmt.Errorf("the file ends in the middle of %s", c.name)
		}
		text, constant := value(tokens[i])
		if !constant {
			return c, i, fmt.Errorf("%q is not a constant: %s", tokens[i].text, only)
		}
		switch _, twice := c.options[key]; {
		case isKey && twice:
			return c, i, fmt.Errorf("%s: the option :%s is there twice", c.name, key)
		case isKey:
			c.options[key] = text
		case len(c.options) > 0:
			return c, i, fmt.Errorf("%s: %q after the options", c.name, text)
		default:
			c.words = append(c.words, text)
		}
		if i++; i < len(tokens) && tokens[i].kind == ',' {
			for i++; i < len(tokens) && tokens[i].kind == '\n'; i++ {
			}
			if i >= len(tokens) {
				return c, i, fmt.Errorf("the file ends after a comma")
			}
			continue
		}
		for closes && i < len(tokens) && tokens[i].kind == '\n' {
			i++
		}
		if closes && i < len(tokens) && tokens[i].kind == ')' {
			closes, i = false, i+1
		}
		if i < len(tokens) && tokens[i].kind != '\n' {
			return c, i, fmt.Errorf("%q is not understood: %s", tokens[i].text, only)
		}
	}
	if closes {
		return c, i, fmt.Errorf("%s: the bracket is not closed", c.name)
	}
	return c, i, nil
}

func isWord(b byte) bool {
	return b == '_' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z' || b >= '0' && b <= '9'
}

// rubyTokens splits a source into tokens. It leaves out comments.
func rubyTokens(name, source string) ([]token, error) {
	var out []token
	line := 1
	for i := 0; i < len(source); {
		b := source[i]
		end := i
		switch {
		case b == '\n' || b == ';':
			out = append(out, token{'\n', "\n", line})
			if b == '\n' {
				line++
			}
			i++
		case b == ' ' || b == '\t' || b == '\r':
			i++
		case b == '\\' && strings.HasPrefix(source[i+1:], "\n"):
			line++
			i += 2
		case b == '#':
			for i < len(source) && source[i] != '\n' {
				i++
			}
		case b == '\'' || b == '"':
			text, after, ok := rubyString(source, i)
			if !ok {
				return nil, tutti.Errorf(tutti.CodeInvalid, "%s:%d: the text has no end, or has #{…}", name, line)
			}
			kind := byte('s')
			if strings.HasPrefix(source[after:], ":") && !strings.HasPrefix(source[after:], "::") {
				kind, after = 'k', after+1
			}
			out = append(out, token{kind, text, line})
			line += strings.Count(source[i:after], "\n")
			i = after
		case strings.HasPrefix(source[i:], "=>"):
			out = append(out, token{'h', "=>", line})
			i += 2
		case b == ':' && i+1 < len(source) && isWord(source[i+1]):
			for end++; end < len(source) && isWord(source[end]); end++ {
			}
			out = append(out, token{':', source[i+1 : end], line})
			i = end
		case isWord(b):
			for end < len(source) && isWord(source[end]) {
				end++
			}
			kind := byte('w')
			text := source[i:end]
			if strings.HasPrefix(source[end:], ":") && !strings.HasPrefix(source[end:], "::") {
				kind, end = 'k', end+1
			}
			out = append(out, token{kind, text, line})
			i = end
		default:
			out = append(out, token{b, string(b), line})
			i++
		}
	}
	return out, nil
}

// rubyString reads a text in quotes that begins at i. It returns the index after the text. It refuses texts with #{…},
// because they are not constant.
func rubyString(source string, i int) (text string, after int, ok bool) {
	quote := source[i]
	var out strings.Builder
	for i++; i < len(source); i++ {
		switch b := source[i]; {
		case b == quote:
			return out.String(), i + 1, true
		case b == '\\' && i+1 < len(source) && (source[i+1] == quote || source[i+1] == '\\'):
			i++
			out.WriteByte(source[i])
		case quote == '"' && b == '#' && strings.HasPrefix(source[i+1:], "{"), quote == '"' && b == '\\':
			return "", 0, false
		default:
			out.WriteByte(b)
		}
	}
	return "", 0, false
}
