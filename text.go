package tutti

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes a text of somebody else fit for logs and terminals: it has at most so many
// bytes, no control characters but the ends of lines and tabs, nothing that turns the
// direction of writing, and no bytes that are not UTF-8. A text that is cut ends in an
// ellipsis.
func Plain(text string, most int) string {
	const cut = "…"
	was := len(text)
	text = strings.Map(func(r rune) rune {
		if isHidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text[:min(was, most)], "\uFFFD"))
	if was <= most && len(text) <= most { // a character that is replaced may be shorter than what replaces it
		return text
	}
	end := min(len(text), max(0, most-len(cut)))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cut
}

// Visible makes what somebody else said fit for a terminal, and loses nothing of it: a control character other than the
// end of a line or a tab, and one that turns the direction of writing, becomes \u and its number, as in JSON. Bytes that are
// not UTF-8 become U+FFFD.
func Visible(text string) string {
	if strings.IndexFunc(text, isHidden) < 0 && utf8.ValidString(text) {
		return text
	}
	var b strings.Builder
	for _, r := range text {
		if isHidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// isHidden reports whether a terminal may take a character for a command.
func isHidden(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}

// OneLine joins the lines of a text. Puppet writes a backslash and an n between the lines of a dependency cycle.
func OneLine(text string) string {
	if strings.Contains(text, "dependency cycle") {
		text = strings.ReplaceAll(text, `\n`, "\n")
	}
	if !strings.Contains(text, "\n") {
		return text
	}
	return strings.Join(strings.Fields(text), " ")
}

// InLine makes the ends of lines and tabs of a text visible, as \n and \t: a title or a path stays in the line that it is
// printed in.
func InLine(text string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text) }

// InEnvironment shortens the path of a file on a node to that inside the environment, where a person has it.
func InEnvironment(path string) string {
	_, rest, ok := strings.Cut(path, "/environments/")
	if _, inside, cut := strings.Cut(rest, "/"); ok && cut {
		return inside
	}
	return path
}

// JoinWords returns them with commas between them.
func JoinWords[T ~string](words []T) string {
	var b strings.Builder
	for i, w := range words {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(w))
	}
	return b.String()
}

// InList is a word alone, or a list of words, in YAML.
func InList[T ~string](list []T) string {
	words := make([]string, len(list))
	for i, w := range list {
		if words[i] = string(w); !yamlWordRE.MatchString(words[i]) || slices.Contains(yamlOthers, strings.ToLower(words[i])) {
			words[i] = `"` + words[i] + `"`
		}
	}
	if len(words) == 1 {
		return words[0]
	}
	return "[" + strings.Join(words, ", ") + "]"
}
