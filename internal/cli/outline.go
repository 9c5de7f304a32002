package cli

import (
	"fmt"
	"io"
	"strings"
)

// outline is a line of text with lines below it.
type outline struct {
	text  string
	below []*outline
}

// newOutline returns a line with no lines below it. Texts in the arguments cannot start a new line.
func newOutline(format string, args ...any) *outline {
	return &outline{text: fmt.Sprintf(format, inLine(args)...)}
}

// The method `add` adds a line below o, and returns the new line.
func (o *outline) add(format string, args ...any) *outline {
	line := newOutline(format, args...)
	o.below = append(o.below, line)
	return line
}

// The method `print` writes the outline as a tree. If a text has several lines, all of them have
// the same indentation.
func (o *outline) print(w io.Writer) { o.write(w, "", "") }

func (o *outline) write(w io.Writer, first, rest string) {
	stem := rest
	if len(o.below) > 0 {
		stem += "│  "
	}
	for i, line := range strings.Split(strings.TrimRight(o.text, "\n"), "\n") {
		if i == 0 {
			fmt.Fprintln(w, first+line)
			continue
		}
		fmt.Fprintln(w, stem+line)
	}
	for i, b := range o.below {
		if i == len(o.below)-1 {
			b.write(w, rest+"└─ ", rest+"   ")
			continue
		}
		b.write(w, rest+"├─ ", rest+"│  ")
	}
}
