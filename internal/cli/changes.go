package cli

import (
	"fmt"
	"io"

	"github.com/tutti-project/tutti"
)

// printChanges prints what changed and failed in a job, the same on many nodes
// once.
func printChanges(w io.Writer, c tutti.JobChanges) {
	fmt.Fprintf(w, "\nwhat changed, by %s\n", count(c.Read, "report"))
	for _, s := range c.Changes {
		fmt.Fprintf(w, "  %s on %s: %s\n", sameTitle(s), count(len(s.Nodes), "node"), some(s.Nodes))
		fmt.Fprintf(w, "      %s%s\n", oneLine(s.Resource, maxLine), place(s.Place))
		fmt.Fprintf(w, "      %s\n", changeText(s.Property, s.Old, s.New, s.Message))
	}
	if len(c.Changes) == 0 {
		fmt.Fprintln(w, "  nothing")
	}
	if c.LeftOut > 0 {
		fmt.Fprintf(w, "  … and %s more than are told apart\n", count(c.LeftOut, "change"))
	}
	for _, u := range c.Unread {
		fmt.Fprintf(w, "  not counted: %s (%s): %s\n", count(u.Runs, "run"), some(u.Nodes), oneLine(u.Why, maxLine))
	}
}

func sameTitle(s tutti.SameChange) string {
	title := "changed"
	switch s.Outcome {
	case tutti.ResourceFailed:
		return "failed"
	case tutti.ResourceOutOfSync:
		title = "would change"
	}
	if s.Property == "" {
		return title
	}
	return title + " (" + intent(s.Corrective, s.Redacted) + ")"
}
