package cli

import (
	"fmt"
	"io"

	"github.com/tutti-project/tutti/api"
)

// printChanges prints the changes and failures in a job. If many nodes have the same change, it
// is printed once.
func printChanges(w io.Writer, c api.JobChanges) {
	printLine(w, "\nwhat changed, by %s\n", count(c.Read, "report"))
	for _, s := range c.Changes {
		printLine(w, "  %s on %s: %s\n", sameTitle(s), count(len(s.Nodes), "node"), some(s.Nodes))
		printLine(w, "      %s%s\n", oneLine(s.Resource, maxLine), place(s.Place))
		printLine(w, "      %s\n", changeText(s.Property, s.Old, s.New, s.Message))
	}
	if len(c.Changes) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	if c.LeftOut > 0 {
		printLine(w, "  … and %s more, which are not listed\n", count(c.LeftOut, "change"))
	}
	for _, u := range c.Unread {
		printLine(w, "  not counted: %s (%s): %s\n", count(u.Runs, "run"), some(u.Nodes), oneLine(u.Why, maxLine))
	}
}

func sameTitle(s api.SameChange) string {
	title := "changed"
	switch s.Outcome {
	case api.ResourceFailed:
		return "failed"
	case api.ResourceOutOfSync:
		title = "would change"
	}
	if s.Property == "" {
		return title
	}
	return title + " (" + intent(s.Corrective, s.Redacted) + ")"
}
