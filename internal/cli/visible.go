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

// visibleWriter makes all that is written visible, see tutti.Visible: nodes, operators and a server that was taken over say
// what they like, and a terminal obeys.
type visibleWriter struct {
	file *os.File
	mu   sync.Mutex
	part []byte // the beginning of a character
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

// rawOf is where a command writes bytes that are no text, or escapes of its own.
func rawOf(out io.Writer) io.Writer {
	if w, ok := out.(*visibleWriter); ok {
		return w.file
	}
	return out
}

// paints is what a palette writes.
var paints = regexp.MustCompile("\x1b\\[(0|1|2|31|32|33)m")

// visiblePainted is a line of a tree, which a palette has painted, with all else of it made visible.
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

// printLine is fmt.Fprintf for what people read: no text of its arguments makes two lines of one.
func printLine(w io.Writer, format string, args ...any) { fmt.Fprintf(w, format, inLine(args)...) }

// inLine returns arguments whose texts are in a line, see tutti.InLine.
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
