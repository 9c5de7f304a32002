package cli

import (
	"cmp"
	"fmt"
	"io"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
)

// plainView prints a line for everything that people may later search for in a log
// file.
type plainView struct {
	progress *progress
	out      io.Writer
	hints    io.Writer
}

func (v *plainView) show(w api.Watched) {
	if w.Event != nil {
		for _, text := range linesOf(v.progress, *w.Event) {
			printLine(v.out, "%s  %s\n", w.Event.At.Local().Format(time.TimeOnly), text)
		}
		return
	}
	if w.Live.Run == "" {
		printLine(v.out, "%s  %s\n", w.Live.At.Local().Format(time.TimeOnly), w.Live.Message)
	}
	if w.Live.Failed {
		printLine(v.out, "%s  %s: %s\n", w.Live.At.Local().Format(time.TimeOnly), w.Live.Node, tutti.Failure{Resource: w.Live.Resource, Message: w.Live.Message})
	}
}

func (v *plainView) say(message string) { fmt.Fprintln(v.hints, message) }

func (v *plainView) finish(err error) {
	if err == nil {
		printSummary(v.out, v.progress.job(), time.Now())
	}
}

func (v *plainView) close() {}

// The function `details` returns the failures of a run, one line each. For a noop run, details also returns what the
// run would change.
func details(res tutti.Result) []string {
	var out []string
	for _, f := range res.Failures {
		out = append(out, f.String())
	}
	for _, c := range res.Changes {
		out = append(out, "would change "+c.String())
	}
	if more := res.Counts.OutOfSync - len(res.Changes); len(res.Changes) > 0 && more > 0 {
		out = append(out, fmt.Sprintf("… and %d more", more))
	}
	return out
}

// The function `ending` describes in a few words how a run ended.
func ending(r *engine.Run) string {
	if r.Lost != "" {
		text := "lost: " + r.Lost
		if r.Result != nil {
			text += "; its result came later: " + resultText(*r.Result)
		}
		return text
	}
	return resultText(*r.Result)
}

// cutOff reports whether a run was stopped before its end. The failures of such a run do not explain why the run ended.
func cutOff(res tutti.Result) bool {
	return res.Outcome == tutti.Interrupted || res.Reason == tutti.BecauseTimeout
}

func resultText(res tutti.Result) string {
	text := fmt.Sprintf("%s in %s", outcome(res.Outcome, res.Reason), short(res.Duration()))
	if res.Counts.Total > 0 {
		text += ", " + count(res.Counts.Total, "resource")
		for _, c := range []struct {
			n    int
			word string
		}{{res.Counts.Changed, "changed"}, {res.Counts.Failed, "failed"}, {res.Counts.Skipped, "skipped"}} {
			if c.n > 0 {
				text += fmt.Sprintf(", %d %s", c.n, c.word)
			}
		}
	}
	if res.NoopPending {
		text += fmt.Sprintf(", %d would change", res.Counts.OutOfSync)
	}
	if res.Overlapped {
		text += ", at the same time as a puppet apply without a lock"
	}
	if res.Outcome.Good() && len(res.Owed) > 0 {
		text += "; " + oneLine(res.Owes(), maxLine)
	}
	if res.Message != "" && (len(res.Failures) == 0 || cutOff(res)) {
		text += ": " + tutti.OneLine(res.Message)
	}
	return text
}

func printSummary(w io.Writer, j *engine.Job, now time.Time) {
	s := j.Summary(now)
	printLine(w, "\n%s %s", j.ID, verdict(s.Outcome, j.Cancelled))
	converges := len(j.Steps) == 1 && j.Steps[0].Kind() == tutti.StepConverge
	if j.Message != "" && !converges {
		printLine(w, " (%s)", j.Message)
	}
	printLine(w, " in %s: %s, %d stopped at the gate, %d failed; the Puppet runs on the critical path took %s\n",
		short(s.Wall), count(s.Runs, "run"), s.Compiles, s.Failed, short(s.CriticalPath))
	if j.Message != "" && converges { // the message has one line for each node
		fmt.Fprintln(w, j.Message)
	}
}

// verdict returns the verdict of a job. If there is no verdict yet, the function
// describes what the job is doing.
func verdict(v tutti.Verdict, cancelled bool) string {
	switch {
	case v != "":
		return string(v)
	case cancelled:
		return "is being cancelled"
	}
	return "goes on"
}

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// codeName returns a name of the code for people. Code without a digest comes from
// the Puppet Server.
func codeName(digest string) string { return cmp.Or(digest, "of the Puppet Server") }
