package cli

import (
	"fmt"
	"io"
	"strings"
)

// outline is a line and those that belong below it.
type outline struct {
	text  string
	below []*outline
}

// newOutline returns a line with nothing below it. What the arguments say stays in it.
func newOutline(format string, args ...any) *outline {
	return &outline{text: fmt.Sprintf(format, inLine(args)...)}
}

// add puts a line below, and returns it.
func (o *outline) add(format string, args ...any) *outline {
	line := newOutline(format, args...)
	o.below = append(o.below, line)
	return line
}

// print writes the tree; lines of a text after its first are indented like it.
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
