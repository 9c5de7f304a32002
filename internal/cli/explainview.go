package cli

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// printStanding prints a node's state and the content of its record.
func printStanding(w io.Writer, n api.NodeDetail, now time.Time) {
	printLine(w, "stands    %s\nneeds     %s\n", standing(n.Standing, now), n.Standing.Needs)
	if n.Recorded == "" {
		fmt.Fprintln(w, "record    none")
		return
	}
	printLine(w, "record    of run %s\n", n.Recorded)
	for _, r := range n.Reads {
		changed := ""
		if r.Changed {
			changed = "  CHANGED since"
			if !r.ChangedAt.IsZero() {
				changed = "  CHANGED " + ago(r.ChangedAt, now)
			}
		}
		printRead(w, r.Read, changed)
	}
	printRest(w, n.Keys, n.Absent, tutti.Record{Exports: n.Exports, Published: n.Published})
}

// The function `standing` describes the state of a node in one line.
func standing(st api.NodeStanding, now time.Time) string {
	text := string(st.State)
	if !st.Since.IsZero() {
		text += fmt.Sprintf(" since %s (%s)", stamp(st.Since), ago(st.Since, now))
	}
	if st.Why != "" && st.State != api.NodeNew {
		text += ": " + tutti.OneLine(strings.TrimPrefix(st.Why, "it waits: "))
	}
	return text
}

func stamp(t time.Time) string { return t.Local().Format(time.DateTime) }

func printNodeExplanation(w io.Writer, e api.NodeExplanation, now time.Time) {
	root := newOutline("%s is %s", e.Node, standing(e.Standing, now))
	if e.Standing.State == api.NodeNew {
		root = newOutline("%s never ran; it joined %s (%s)", e.Node, stamp(e.Standing.Since), ago(e.Standing.Since, now))
	}
	if r := e.Standing.Run; r != nil {
		line := root.add("judged by %s", runText(*r, now))
		line.add("the run got %s, %s", count(e.Reads, "answer"), stillSo(e))
		if e.Basis != nil {
			line.add("it had %s", basisText(*e.Basis, now))
		}
	}
	for _, f := range e.Failures {
		root.add("%s", f)
	}
	for _, c := range e.Changed {
		how := "has another answer"
		if c.Query.Own() { // the question is named like its answer
			how = "has changed"
		}
		line := root.add("%s %s%s", question(c.Query), how, askedAt(c.At))
		if len(c.Causes) == 0 {
			line.add("the log no longer shows who changed it")
		}
		for _, cause := range c.Causes {
			addCause(line, cause, now)
		}
	}
	for _, wait := range e.Waits {
		addWait(root, wait, now)
	}
	for _, b := range e.Before {
		root.add("%s is published by %s, which run first because they are not good yet", question(b.Query), some(b.Publishers))
	}
	if e.Standing.Rests != "" {
		root.add("the node does not run by itself now: %s", e.Standing.Rests)
	}
	switch {
	case e.Active != nil:
		root.add("now %s: %s", e.Active.Phase, runText(*e.Active, now))
	case e.Standing.Needs == "proof":
		root.add("next: a compile; if it shows that nothing has changed, the node is good, otherwise the catalog is applied")
	case e.Standing.Needs == "apply":
		root.add("next: a run")
	}
	root.print(w)
}

// A node's state depends on answers and on some other data. basisText describes the
// other data in one line.
func basisText(b api.NodeBasis, now time.Time) string {
	var parts []string
	switch {
	case b.Code != "":
		parts = append(parts, fmt.Sprintf("code %.19s of environment %s", b.Code, b.Environment)+inBrackets(b.Commit))
	case b.Environment != "":
		parts = append(parts, "environment "+b.Environment)
	default:
		parts = append(parts, "the environment that the node names")
	}
	if b.Program != "" { // a server of an earlier release does not send the program
		parts = append(parts, fmt.Sprintf("mode %s", b.Program))
	}
	if b.Puppet != "" {
		parts = append(parts, "Puppet "+b.Puppet)
	}
	switch {
	case len(b.Groups) > 0:
		parts = append(parts, "groups "+joined(b.Groups))
	case b.Groups != nil:
		parts = append(parts, "no group")
	}
	switch {
	case b.Facts == "":
		parts = append(parts, "facts that were not recorded")
	case b.FactsAt.IsZero():
		parts = append(parts, fmt.Sprintf("facts %.19s, no newer facts reported since", b.Facts))
	default:
		parts = append(parts, fmt.Sprintf("facts %.19s, last reported %s", b.Facts, ago(b.FactsAt, now)))
	}
	if !b.Machine.IsZero() {
		parts = append(parts, "the machine that joined "+stamp(b.Machine))
	}
	return strings.Join(parts, "; ")
}

func stillSo(e api.NodeExplanation) string {
	switch len(e.Changed) {
	case 0:
		return "and no answer has changed since"
	case 1:
		return "and 1 question has another answer now"
	}
	return fmt.Sprintf("and %d questions have another answer now", len(e.Changed))
}

// askedAt returns a text about the place in the code that asked a question, with the
// class or define.
func askedAt(p tutti.Place) string {
	text := strings.TrimPrefix(place(p), "  at ")
	switch {
	case text == "":
		return ""
	case p.Resource != "":
		return fmt.Sprintf(" (asked at %s, in %s)", text, p.Resource)
	}
	return fmt.Sprintf(" (asked at %s)", text)
}

// runText describes a run and its reason in one line.
func runText(r api.RunView, now time.Time) string {
	text := fmt.Sprintf("run %s", r.Run)
	if r.Node != "" {
		text += " of " + string(r.Node)
	}
	switch {
	case r.Proved:
		text += ", which proved it good"
	case r.Stopped:
		text += ", stopped at its gate"
	case r.Outcome != "":
		text += ", " + outcome(r.Outcome, r.Reason)
	}
	if !r.EndedAt.IsZero() {
		text += " " + ago(r.EndedAt, now)
	}
	switch {
	case r.Local != nil:
		return text + ", " + foreignWords(r.Local)
	case r.Foreign:
		return text + ", not started by Tutti"
	}
	if r.Job == "" {
		return text
	}
	text += fmt.Sprintf(", in job %s", r.Job)
	if r.By == "" {
		return text
	}
	text += fmt.Sprintf(" (plan %s", r.Plan)
	if r.Step != "" && string(r.Step) != string(r.Plan) {
		text += fmt.Sprintf(", step %s", r.Step)
	}
	if r.By == "server" {
		text += ", begun by the server itself"
		if r.Cause != "" {
			text += ": " + r.Cause
		}
		return text + ")"
	}
	return text + ", started by " + r.By + ")"
}

func addCause(to *outline, c api.Cause, now time.Time) {
	what := "exports changed"
	switch {
	case c.Unset:
		what = "value " + c.Key + " unset"
	case c.Key != "":
		what = "value " + c.Key + " set"
	case c.ENC:
		what = "another answer stored"
	case c.Groups:
		what = "its groups changed"
	}
	line := to.add("%s by %s, %s (%s)", what, c.By, stamp(c.At), ago(c.At, now))
	for _, part := range []struct {
		sign string
		refs []string
	}{{"new", c.Added}, {"gone", c.Removed}, {"another", c.Altered}} {
		if len(part.refs) > 0 {
			line.add("%s: %s", part.sign, some(part.refs))
		}
	}
	if c.Unknown {
		line.add("the log no longer shows what the node exported before")
	}
	if c.Run != nil {
		addRun(line, *c.Run, now)
	}
}

// addRun adds a line about the run in which something happened, with the reason
// of that run.
func addRun(to *outline, r api.RunView, now time.Time) {
	line := to.add("in %s", runText(r, now))
	if r.OtherCode {
		line.add("the run had other code than the run before")
	}
	for _, q := range r.Because {
		line.add("the run got another answer than the run before: %s", question(q))
	}
}

func addWait(root *outline, wait api.WaitedFor, now time.Time) {
	line := root.add("it waits for %s%s", question(wait.Query), askedAt(wait.At))
	if wait.Answered {
		line.add("the question has an answer now")
	}
	if len(wait.Publishers) > 0 {
		line.add("to come from %s", some(wait.Publishers))
	}
	for _, cause := range wait.Before {
		addCause(line, cause, now)
	}
	if !wait.Answered && len(wait.Publishers)+len(wait.Before) == 0 {
		line.add("no known catalog publishes it, and no node published it before")
	}
}

// The function `some` returns the first few names.
func some[T ~string](names []T) string {
	const most = 8
	if len(names) <= most {
		return strings.Join(plain(names), ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(plain(names[:most]), ", "), len(names)-most)
}

func plain[T ~string](names []T) []string {
	out := make([]string, len(names))
	for i, n := range names {
		out[i] = string(n)
	}
	return out
}

func printValueExplanation(w io.Writer, e api.ValueExplanation, now time.Time) {
	root := newOutline("value %s has none", e.Key)
	if v := e.Value; v != nil {
		root = newOutline("value %s = %s", e.Key, v.Value)
		owner := "operators"
		if v.Owner != "" {
			owner = "node " + string(v.Owner)
		}
		root.add("owned by %s", owner)
		line := root.add("set by %s, %s (%s)", v.By, stamp(v.At), ago(v.At, now))
		if e.Run != nil {
			addRun(line, *e.Run, now)
		}
	}
	if len(e.Declared) > 0 {
		root.add("published by the catalogs of %s", some(e.Declared))
	}
	if len(e.Readers) > 0 {
		root.add("read by %s", some(e.Readers))
	}
	if h := e.Hiera; h != nil {
		where := "on all nodes"
		if h.Node != "" {
			where = "on " + string(h.Node)
		}
		line := root.add("feeds hiera key %s %s", h.Key, where)
		if len(h.Readers) > 0 {
			line.add("looked up by %s", some(h.Readers))
		}
		if len(h.Hidden) > 0 {
			line.add("hidden on %s by a value of the node itself", some(h.Hidden))
		}
	}
	if len(e.Versions) > 0 {
		line := root.add("its versions that are still kept")
		for _, v := range e.Versions {
			line.add("%s", versionText(v))
		}
	}
	root.print(w)
}

func versionText(v api.ValueVersion) string {
	text := string(v.Value) + " set"
	if v.Unset {
		text = "unset"
	}
	text = fmt.Sprintf("%s by %s, %s", text, v.By, stamp(v.At))
	if v.Job != "" {
		text += fmt.Sprintf(", job %s, run %s", v.Job, v.Run)
	}
	return text
}

func printResourceExplanation(w io.Writer, e api.ResourceExplanation, now time.Time) {
	root := newOutline("%s on %s", e.Resource, e.Node)
	root.add("as of %s", runText(*e.Run, now))
	if e.Reported {
		line := root.add("%s%s", e.Status, place(e.Place))
		for _, ev := range e.Events {
			what := ev.Status
			if ev.Property != "" {
				what = ev.Property + " " + what
			}
			if ev.Corrective {
				what += ", corrective"
			}
			event := line.add("%s: %s", what, tutti.WithoutJournal(ev.Message))
			if ev.Old != "" || ev.New != "" {
				event.add("from %s to %s", orDash(ev.Old), orDash(ev.New))
			}
		}
	} else {
		root.add("not in the report of that run: either the resource was as wanted (Puppet 8 reports only the others), or it is not in the catalog")
	}
	if len(e.Containers) > 0 {
		root.add("in %s", strings.Join(e.Containers, " > "))
	}
	for _, x := range e.Exported {
		line := root.add("exported by %s%s", x.Node, place(x.Place))
		if x.Run != nil {
			line.add("in %s", runText(*x.Run, now))
		}
		line.add("collected by %s%s", question(x.Read.Query), askedAt(x.Read.At))
	}
	addReads(root, e)
	root.print(w)
}

// addReads adds lines about a resource. The lines say which answers the run read in the
// classes that contain the resource.
func addReads(root *outline, e api.ResourceExplanation) {
	if !e.Reported {
		root.add("it is unknown what was read for it, because only the report shows the classes that contain it")
		return
	}
	if len(e.Reads)+len(e.Keys) == 0 {
		root.add("nothing was read in these classes, according to Puppet")
		return
	}
	line := root.add("read in these classes; it is unknown which answer decided an attribute")
	for _, r := range e.Reads {
		line.add("%s  %.19s%s", question(r.Query), orDash(string(r.Digest)), askedAt(r.At))
	}
	absent := 0
	for _, k := range e.Keys {
		if k.Found {
			line.add("hiera key %s%s", k.Key, askedAt(k.At))
		} else {
			absent++
		}
	}
	if absent > 0 {
		line.add("%s that Tutti did not have", count(absent, "hiera key"))
	}
}
