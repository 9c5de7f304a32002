package tutti

import (
	"strings"
	"unicode"
)

// Plain makes a text of somebody else fit for logs and terminals: it is cut at most
// bytes, and has no control characters but the ends of lines and tabs, nothing that
// turns the direction of writing, and no bytes that are not UTF-8.
func Plain(text string, most int) string {
	const cut = "…"
	if len(text) > most {
		text = text[:max(0, most-len(cut))] + cut
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\n' && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return unicode.ReplacementChar
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD"))
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

// InEnvironment shortens the path of a file on a node to that inside the environment, where a person has it.
func InEnvironment(path string) string {
	_, rest, ok := strings.Cut(path, "/environments/")
	if _, inside, cut := strings.Cut(rest, "/"); ok && cut {
		return inside
	}
	return path
}
