package cli

import (
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/tutti-project/tutti"
)

// visibleWriter makes all characters of a text visible (see tutti.Visible). Texts from nodes, operators and a hostile
// server may contain control characters, which a terminal would execute.
type visibleWriter struct {
	file *os.File
	mu   sync.Mutex
	part []byte // the first bytes of an incomplete character
}

func (w *visibleWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := slices.Concat(w.part, p)
	w.part = nil
	for i := max(0, len(text)-utf8.UTFMax+1); i < len(text); i++ {
		if utf8.RuneStart(text[i]) && !utf8.FullRune(text[i:]) {
			w.part = append(w.part, text[i:]...)
			text = text[:i]
			break
		}
	}
	if _, err := io.WriteString(w.file, tutti.Visible(string(text))); err != nil {
		return 0, err
	}
	return len(p), nil
}

// rawOf returns a writer that does not change the bytes. It is for files, and for escapes that a command itself
// writes.
func rawOf(out io.Writer) io.Writer {
	if w, ok := out.(*visibleWriter); ok {
		return w.file
	}
	return out
}

// The expression `paints` matches the escapes that a palette writes.
var paints = regexp.MustCompile("\x1b\\[(0|1|2|31|32|33)m")

// visiblePainted makes the characters of a tree's line visible, but keeps the escapes of the palette.
func visiblePainted(line string) string {
	var b strings.Builder
	part := func(text string) { b.WriteString(tutti.Visible(strings.ReplaceAll(text, "\n", " "))) }
	from := 0
	for _, at := range paints.FindAllStringIndex(line, -1) {
		part(line[from:at[0]])
		b.WriteString(line[at[0]:at[1]])
		from = at[1]
	}
	part(line[from:])
	return b.String()
}

// printLine does the same as fmt.Fprintf, for output that people read. Texts in the arguments cannot start a new
// line.
func printLine(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format, inLine(args)...) }

// inLine returns the arguments. Each text in the arguments is converted to one line (see tutti.InLine).
func inLine(args []any) []any {
	out := make([]any, len(args))
	for i, arg := range args {
		out[i] = arg
		if kind := reflect.ValueOf(arg).Kind(); kind == reflect.String || kind == reflect.Struct {
			out[i] = tutti.InLine(fmt.Sprint(arg))
		}
	}
	return out
}
