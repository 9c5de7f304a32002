package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// printENC shows the last good answer of the site's ENC about a node, and how old it is.
func printENC(w io.Writer, e api.ENCView, now time.Time) {
	if c := e.Classification; c == nil {
		printLine(w, "enc       no answer yet; the node gets no order without one\n")
	} else {
		var parts []string
		if len(c.Classes) > 0 {
			parts = append(parts, "classes "+strings.Join(sortedKeys(c.Classes), ", "))
		}
		if len(c.Parameters) > 0 {
			parts = append(parts, "parameters "+strings.Join(sortedKeys(c.Parameters), ", "))
		}
		if c.Environment != "" {
			parts = append(parts, "environment "+c.Environment)
		}
		text := strings.Join(parts, "; ")
		if text == "" {
			text = "an empty answer"
		}
		age := "not asked since the server started"
		if !e.AnsweredAt.IsZero() {
			age = "answered " + ago(e.AnsweredAt, now)
		}
		printLine(w, "enc       %s\n          the same since %s, %s\n", tutti.InLine(text), ago(e.ChangedAt, now), age)
	}
	if e.Error != "" {
		kept := ""
		if e.Classification != nil {
			kept = ", so the last answer stays"
		}
		printLine(w, "          %s\n", tutti.OneLine(fmt.Sprintf("it fails since %s%s: %s", ago(e.FailsSince, now), kept, e.Error)))
	}
}
