package cli

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// These constants limit how much of a report a terminal shows. With --json, the output contains the whole report.
const (
	maxValue    = 200 // bytes of one old or new value
	maxSerious  = 50  // warnings and errors
	shownTimes  = 6
	shownSlow   = 5
	slowSeconds = 0.1 // a resource that takes less time does not count as slow
)

// printRun prints a run with all stored details. The server has already made texts from others safe for terminals.
func printRun(w io.Writer, r runJSON, logs bool, now time.Time) {
	printRunHead(w, r.RunReport, now)
	journals := shownJournals{}
	if rep := r.Report; rep != nil {
		printResources(w, *rep, journals)
		printUnrefreshed(w, *rep, r.Result)
		printTimes(w, *rep)
	} else if r.Result != nil {
		for _, line := range details(*r.Result) {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	printLog(w, r, logs, journals)
}

// shownJournals contains the journals of services that were already printed. shownJournals is needed because Puppet
// reports each journal several times.
type shownJournals map[string]bool

// The method `cut` splits a message into two parts. The results are Puppet's own text, and the journal. If the same
// journal was printed before, the journal is empty, and the text says that the journal is above.
func (s shownJournals) cut(message string) (said string, journal []string) {
	said, unit, lines := tutti.SplitJournal(message)
	key := unit + "\n" + strings.Join(lines, "\n")
	switch {
	case unit == "":
		return message, nil
	case len(lines) == 0:
		return said + "; its journal is empty", nil
	case s[key]:
		return said + "; its journal is above", nil
	}
	s[key] = true
	return said + "; the end of its journal:", lines
}

func (s shownJournals) printLine(w io.Writer, l api.LogLine) {
	var journal []string
	l.Message, journal = s.cut(l.Message)
	printLogLine(w, l)
	printJournal(w, "      ", journal)
}

func printJournal(w io.Writer, indent string, journal []string) {
	for _, line := range journal {
		fmt.Fprintf(w, "%s%s\n", indent, oneLine(line, maxLine))
	}
}

func printRunHead(w io.Writer, r api.RunReport, now time.Time) {
	say := func(what, format string, args ...any) {
		fmt.Fprintf(w, "%-11s%s\n", what, oneLine(fmt.Sprintf(format, args...), maxLine))
	}
	say("run", "%s", r.Run)
	say("node", "%s", r.Node)
	say("job", "%s", ofJob(r))
	say("mode", "%s", r.Mode)
	say("outcome", "%s", runOutcome(r))
	if began := runBegan(r); !began.IsZero() {
		say("began", "%s, %s", stamp(began), ago(began, now))
	}
	if r.Result != nil {
		say("took", "%s", short(r.Result.Duration()))
		if how := howLoaded(*r.Result); how != "" {
			say("start", "%s", how)
		}
	}
	say("code", "%s", codeOf(r))
	if r.Puppet != "" {
		say("puppet", "%s", r.Puppet)
	}
	if r.Report != nil {
		say("resources", "%s", countsText(r.Report.Counts))
	} else {
		say("report", "none: %s", r.Missing.Text)
	}
}

func ofJob(r api.RunReport) string {
	if r.Foreign {
		return "none: " + foreignWords(r.Local)
	}
	text := string(r.Job)
	if r.Step != "" {
		text += fmt.Sprintf(", step %s", r.Step)
	}
	if r.Attempt > 1 {
		text += fmt.Sprintf(", attempt %d", r.Attempt)
	}
	if r.By != "" {
		text += ", started by " + r.By
	}
	return text
}

// runOutcome returns the outcome of a run, or the present phase of an unfinished run.
func runOutcome(r api.RunReport) string {
	text := outcome(r.Outcome, r.Reason)
	switch {
	case r.Proved:
		return "stopped at its gate, because the node is proved good"
	case r.Stopped:
		return "stopped at its gate: " + r.GateWhy
	case r.Lost != "":
		text = "lost: " + r.Lost
	case r.Outcome == "":
		return "none yet: it is " + r.Phase
	}
	if r.Result == nil {
		return text
	}
	if r.Result.Corrective {
		text += ", corrective"
	}
	if r.Result.Phase != "" && !r.Result.Outcome.Good() {
		text += ", in phase " + r.Result.Phase
	}
	if r.Result.Message != "" {
		text += ": " + r.Result.Message
	}
	return text
}

func runBegan(r api.RunReport) time.Time {
	if r.Result != nil {
		return r.Result.StartedAt
	}
	return r.ClaimedAt
}

// howLoaded describes whether Puppet was already loaded for the run, and whether facts were already collected. If the
// report does not say this, the text is empty.
func howLoaded(r tutti.Result) string {
	switch {
	case r.Cold != "":
		return "cold: " + r.Cold
	case r.FactsAge > 0:
		return "warm, with facts of " + short(r.FactsAge) + " before"
	case r.Warm:
		return "warm"
	}
	return ""
}

// countsText lists the outcomes whose count is above zero.
func countsText(c api.ReportCounts) string {
	var parts []string
	for _, p := range []struct {
		n    int
		word string
	}{{c.Failed, "failed"}, {c.Skipped, "skipped"}, {c.Changed, "changed"}, {c.OutOfSync, "out of sync"}, {c.Unchanged, "unchanged"}} {
		if p.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", p.n, p.word))
		}
	}
	text := fmt.Sprintf("%d: %s", c.Total, strings.Join(parts, ", "))
	if len(parts) == 0 {
		text = "0"
	}
	for _, p := range []struct {
		n    int
		word string
	}{{c.Corrective, "corrective"}, {c.FailedToRestart, "failed to restart"}, {c.Restarted, "restarted"}} {
		if p.n > 0 {
			text += fmt.Sprintf("; %d %s", p.n, p.word)
		}
	}
	return text
}

// sections are the outcomes in the order in which they are printed.
var sections = []struct{ outcome, title string }{
	{api.ResourceFailed, "failed"},
	{api.ResourceChanged, "changed"},
	{api.ResourceOutOfSync, "not changed (noop)"},
	{api.ResourceSkipped, "skipped"},
	{api.ResourceUnchanged, "audited"},
}

func printResources(w io.Writer, r api.Report, journals shownJournals) {
	for _, s := range sections {
		title := "\n" + s.title + "\n"
		for _, st := range r.Resources {
			if st.Outcome == s.outcome {
				fmt.Fprint(w, title)
				title = ""
				printStatus(w, st, journals)
			}
		}
	}
	if r.LeftOut > 0 {
		fmt.Fprintf(w, "\n… and %s more, which are not kept\n", count(r.LeftOut, "resource"))
	}
}

// printUnrefreshed prints the refreshes that a run should have done and has not done. Puppet's report does not
// contain them. After a good run, the node still owes these refreshes. If the run was not good, its result lists them
// as failures.
func printUnrefreshed(w io.Writer, r api.Report, result *tutti.Result) {
	if result == nil {
		return
	}
	var lines []string
	title := "not refreshed"
	switch {
	case result.Outcome.Good():
		title = "owed refreshes"
		for _, o := range result.Owed {
			lines = append(lines, fmt.Sprintf("%s: since run %s", o.Resource, o.Run))
		}
	case cutOff(*result):
		title = "not refreshed, the run was cut off"
	}
	for _, f := range result.Failures {
		failed := func(st api.ReportStatus) bool {
			return st.Resource == f.Resource && st.Outcome == api.ResourceFailed
		}
		owed := func(o tutti.Owed) bool { return o.Resource == f.Resource }
		if !slices.ContainsFunc(r.Resources, failed) && (cutOff(*result) || slices.ContainsFunc(result.Owed, owed)) {
			lines = append(lines, f.String())
		}
	}
	for i, line := range lines {
		if i == 0 {
			fmt.Fprintf(w, "\n%s\n", title)
		}
		fmt.Fprintf(w, "  %s\n", oneLine(line, maxLine))
	}
}

func printStatus(w io.Writer, st api.ReportStatus, journals shownJournals) {
	fmt.Fprintf(w, "  %s%s%s", oneLine(st.Resource, maxLine), place(st.Place), within(st.Containers))
	if st.Seconds > 0 {
		fmt.Fprintf(w, "  %s", quick(st.Seconds))
	}
	fmt.Fprintln(w)
	if len(st.FailedDependencies) > 0 {
		fmt.Fprintf(w, "      because of %s\n", oneLine(strings.Join(st.FailedDependencies, ", "), maxLine))
	}
	if st.Message != "" {
		said, journal := journals.cut(st.Message)
		fmt.Fprintf(w, "      %s\n", oneLine(said, maxLine))
		printJournal(w, "          ", journal)
	}
	for _, e := range st.Events {
		var journal []string
		e.Message, journal = journals.cut(e.Message)
		fmt.Fprintf(w, "      %s\n", eventText(e))
		printJournal(w, "          ", journal)
	}
}

func within(containers []string) string {
	if len(containers) == 0 {
		return ""
	}
	return "  in " + oneLine(strings.Join(containers, " > "), maxLine)
}

// eventText describes the change of a property: the old value, the new value, and whether the change was corrective
// or intentional.
func eventText(e api.ResourceEvent) string {
	text := changeText(e.Property, e.Old, e.New, e.Message)
	switch e.Status {
	case "failure":
		if e.Old != "" || e.New != "" {
			text += "  failed: " + oneLine(e.Message, maxLine)
		}
		return text
	case "audit":
		return changeText(e.Property, "", "", e.Message)
	}
	if e.Property == "" { // without a property, the event is a refresh because of other changes
		return text
	}
	return text + "  " + intent(e.Corrective, e.Redacted)
}

// The function `intent` returns the word for the reason of a change. A corrective change reverses a change from
// outside Puppet. An intentional change comes from new code or data. For Sensitive values the reason is unknown,
// because Puppet does not store them and so cannot compare them.
func intent(corrective, redacted bool) string {
	switch {
	case corrective:
		return "corrective"
	case redacted:
		return "corrective or intentional: unknown because the value is Sensitive"
	}
	return "intentional"
}

// changeText describes a change of a property. If the change has no values, changeText returns Puppet's message.
func changeText(property, from, to, message string) string {
	text := oneLine(message, maxLine)
	if from != "" || to != "" {
		text = oneLine(orDash(from), maxValue) + " → " + oneLine(orDash(to), maxValue)
	}
	if property != "" {
		text = oneLine(property, maxValue) + ": " + text
	}
	return text
}

// oneLine converts a text to one line, and limits its size in bytes.
func oneLine(text string, most int) string {
	return tutti.Plain(tutti.InLine(text), most)
}

// The function `quick` formats the time that a resource took.
func quick(seconds float64) string { return fmt.Sprintf("%.2fs", seconds) }

func printTimes(w io.Writer, r api.Report) {
	var times, slow []string
	for _, t := range r.Times[:min(len(r.Times), shownTimes)] {
		times = append(times, fmt.Sprintf("%s %s", oneLine(t.Name, maxValue), quick(t.Seconds)))
	}
	for _, t := range r.Slowest[:min(len(r.Slowest), shownSlow)] {
		if t.Seconds >= slowSeconds {
			slow = append(slow, fmt.Sprintf("  %s  %s", quick(t.Seconds), oneLine(t.Name, maxLine)))
		}
	}
	if len(slow) > 0 {
		fmt.Fprintf(w, "\nslowest\n%s\n", strings.Join(slow, "\n"))
	}
	if len(times) > 0 {
		fmt.Fprintf(w, "\ntimes\n  %s\n", strings.Join(times, ", "))
	}
}

func printLog(w io.Writer, r runJSON, all bool, journals shownJournals) {
	if r.NoLog != "" {
		if all {
			fmt.Fprintf(w, "\nlog: %s\n", r.NoLog)
		}
		return
	}
	lines, title := r.Log, "log"
	if !all {
		lines, title = lines[:min(len(lines), maxSerious)], "warnings and errors of the log"
	}
	if len(lines) > 0 || all {
		fmt.Fprintf(w, "\n%s\n", title)
	}
	for _, l := range lines {
		journals.printLine(w, l)
	}
	if more := len(r.Log) - len(lines); more > 0 {
		fmt.Fprintf(w, "  … and %d more; all of them: tutti run show %s --logs\n", more, r.Run)
	}
}

func printLogLine(w io.Writer, l api.LogLine) {
	printLine(w, "  %s  %-7s  %s", l.At.Local().Format(time.TimeOnly), l.Level, oneLine(l.Message, maxLine))
	if l.Source != "" && l.Source != "Puppet" {
		fmt.Fprintf(w, "  (%s)", oneLine(l.Source, maxLine))
	}
	if l.File != "" {
		fmt.Fprint(w, at(l.File, l.Line, l.Column))
	}
	fmt.Fprintln(w)
}

// codeOf names the code that a run used. For code of a Puppet Server, codeOf names the environment. If the order has
// no environment, codeOf uses the environment in the report.
func codeOf(r api.RunReport) string {
	if r.Code != "" {
		return fmt.Sprintf("%.12s of environment %s", r.Code.Hex(), r.Environment)
	}
	environment := r.Environment
	if environment == "" && r.Report != nil {
		environment = r.Report.Environment
	}
	if environment == "" {
		return codeName("")
	}
	return codeName("") + ", environment " + environment
}
