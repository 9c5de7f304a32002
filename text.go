package tutti

import (
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Plain makes a foreign text safe for logs and terminals. Plain removes bytes that are not UTF-8,
// control characters other than line ends and tabs, and characters that change the direction of
// writing. The result has at most the given number of bytes. A shortened text ends in an ellipsis.
func Plain(text string, most int) string {
	const cut = "…"
	was := len(text)
	text = strings.Map(func(r rune) rune {
		if isHidden(r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text[:min(was, most)], "\uFFFD"))
	if was <= most && len(text) <= most { // a replaced character may be shorter than its replacement
		return text
	}
	end := min(len(text), max(0, most-len(cut)))
	for end > 0 && end < len(text) && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + cut
}

// Visible makes a foreign text safe for a terminal without losing content. Visible writes each control character other
// than a line end or a tab as \u and its number, as in JSON. Visible does the same with characters that change the
// direction of writing. Visible replaces bytes that are not UTF-8 by U+FFFD.
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

// isHidden reports whether a terminal may interpret a character as a command.
func isHidden(r rune) bool {
	return unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r)
}

// OneLine joins the lines of a text to one line. In the text about a dependency cycle, Puppet writes a backslash and
// an n in place of line ends.
func OneLine(text string) string {
	if strings.Contains(text, "dependency cycle") {
		text = strings.ReplaceAll(text, `\n`, "\n")
	}
	if !strings.Contains(text, "\n") {
		return text
	}
	return strings.Join(strings.Fields(text), " ")
}

// InLine writes line ends and tabs in a text as \n and \t, so that a title or a path fits in one printed line.
func InLine(text string) string { return strings.NewReplacer("\n", `\n`, "\t", `\t`).Replace(text) }

// InEnvironment shortens the path of a file on a node to the part inside the environment, because people know this
// part.
func InEnvironment(path string) string {
	_, rest, ok := strings.Cut(path, "/environments/")
	if _, inside, cut := strings.Cut(rest, "/"); ok && cut {
		return inside
	}
	return path
}

// JoinWords joins the words with commas between them.
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

// InList writes a list in YAML. A list of one word becomes the word alone.
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
