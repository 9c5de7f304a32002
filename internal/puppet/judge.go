package puppet

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
)

type phaseLine struct {
	T       time.Time `json:"t"`
	Phase   string    `json:"phase"`
	Verdict string    `json:"verdict"`
	Reason  string    `json:"reason"`
	Exit    *int      `json:"exit"`
	Error   *struct {
		Class   string `json:"class"`
		Message string `json:"message"`
	} `json:"error"`
	Warm       bool         `json:"warm"`
	Cold       string       `json:"cold"` // the reason why the run is not warm
	Age        float64      `json:"age"`  // age of the facts, in seconds
	Waits      []tutti.Wait `json:"waits"`
	Disabled   *string      `json:"disabled"` // the message with which the agent is disabled
	WaitingFor struct {
		PID     int    `json:"pid"`
		Command string `json:"command"`
	} `json:"waiting_for"`
}

type logLine struct {
	Level   string `json:"level"`
	Message string `json:"message"`
	Source  string `json:"source"`
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"pos"` // the column; Puppet calls it `pos`
}

// The launcher has these exit codes in addition to Puppet's own exit codes.
const (
	exitRefused  = 64
	exitLocked   = 75
	exitStopped  = 76
	exitDisabled = 77
)

// trace is everything that a launcher left, except its report.
type trace struct {
	last       string // the last phase before done
	before     string // the phase before the phase `last`
	reached    map[string]bool
	gate       phaseLine
	lock       phaseLine
	disabled   *string
	waits      []tutti.Wait // what the compile waits for
	warm       bool
	factsAge   float64
	cold       string
	done       *phaseLine
	errors     []logLine
	stderr     string
	unreadable int // number of lines of phase.jsonl that cannot be read, except an unfinished last line
	firstAt    time.Time
	lastAt     time.Time
}

// Judge returns how the run in dir ended. The caller must make sure that no process of the run is left. StartedAt
// and EndedAt are the launcher's times, and the caller may replace them. Without a report from this run, Judge
// never returns a good outcome.
func Judge(dir string, run tutti.RunID) tutti.Result {
	tr, err := readTrace(dir)
	if err != nil {
		return tutti.Result{Run: run, Outcome: tutti.Failed, Reason: tutti.BecauseMachinery, Message: "the files of the run cannot be read: " + err.Error()}
	}
	out := tutti.Result{Run: run, Phase: tr.last, StartedAt: tr.firstAt, EndedAt: tr.lastAt, Warm: tr.warm, Cold: tr.cold, FactsAge: time.Duration(tr.factsAge * float64(time.Second))}
	report, err := readReport(dir)
	switch {
	case err == nil && report.TransactionUUID != string(run):
		fail(&out, tutti.BecauseMachinery, fmt.Sprintf("the report is of another run, %q", report.TransactionUUID))
	case err == nil:
		judgeReport(&out, report, tr)
	case errors.Is(err, os.ErrNotExist):
		judgeTrace(&out, tr)
	default:
		fail(&out, tutti.BecauseMachinery, "the report cannot be read: "+err.Error())
	}
	if tr.reached["apply"] && !out.Outcome.Good() {
		lost, err := lostRefreshes(dir, out.Failures)
		if err != nil {
			out.Message += "; the list of owed refreshes cannot be read: " + err.Error()
		}
		out.Failures = slices.Concat(out.Failures, lost)
		out.Failures = out.Failures[:min(len(out.Failures), tutti.MaxFailures)]
	}
	shorten(&out)
	return out
}

// shorten bounds all texts of a result.
func shorten(out *tutti.Result) {
	out.Message, out.Phase, out.Cold = short(out.Message), short(out.Phase), short(out.Cold)
	for i, f := range out.Failures {
		out.Failures[i] = tutti.Failure{Resource: short(f.Resource), File: short(f.File), Line: f.Line, Column: f.Column, Message: short(f.Message)}
	}
	for i, c := range out.Changes {
		out.Changes[i] = tutti.Change{Resource: short(c.Resource), File: short(c.File), Line: c.Line, Message: short(c.Message)}
	}
}

// maxText bounds each text of a result, in bytes. Report and log have the whole text.
const maxText = 4 << 10

func short(text string) string {
	const cut = "…"
	if len(text) > maxText {
		text = strings.ToValidUTF8(text[:maxText-len(cut)], "") + cut
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

func fail(out *tutti.Result, why tutti.Reason, message string) {
	out.Outcome, out.Reason, out.Message = tutti.Failed, why, message
}

// judgeTrace judges a run without a report by the phase that it reached.
func judgeTrace(out *tutti.Result, tr trace) {
	switch {
	case tr.done == nil && tr.last == "" && tr.stderr != "":
		fail(out, tutti.BecauseMachinery, "Puppet's launcher did not start: "+tr.stderr)
		return
	case tr.done == nil && tr.last == "":
		out.Outcome, out.Message = tutti.Interrupted, "the run was about to start, but no Puppet process exists, and none has written anything"
		return
	case tr.done == nil:
		out.Outcome, out.Message = tutti.Interrupted, "the Puppet process is gone in phase "+tr.last
		return
	case tr.signalled():
		out.Outcome, out.Message = tutti.Interrupted, "somebody ended the Puppet process in phase "+tr.last+": "+tr.message()
		return
	}
	exit := -1
	if tr.done.Exit != nil {
		exit = *tr.done.Exit
	}
	message := tr.message()
	switch {
	case tr.last == "compile" && len(tr.waits) > 0:
		wait(out, tr.waits)
	case exit == exitRefused:
		fail(out, tutti.BecauseRefused, message)
	case exit == exitDisabled && tr.disabled != nil:
		out.Outcome, out.Message = tutti.Skipped, "Puppet is disabled on the node: "+*tr.disabled
	case exit == exitLocked:
		fail(out, tutti.BecauseTimeout, "another Puppet held the lock: "+tr.lock.WaitingFor.Command)
	case exit == exitStopped && (tr.gate.Verdict == string(tutti.GateStop) || tr.gate.Verdict == string(tutti.GateGo)):
		// If the verdict is `go`, the launcher stops here only when its order was just to compile.
		out.Stopped, out.Message = true, tr.gate.Reason
	case exit == exitStopped && tr.gate.Verdict == string(tutti.CodeRefused):
		fail(out, tutti.BecauseRefused, tr.gate.Reason)
	case exit == exitStopped:
		fail(out, tutti.BecauseMachinery, "at the gate: "+tr.gate.Reason)
	default:
		fail(out, reasonOf(tr.last), message)
		out.Failures = failuresOf(tr.errors)
	}
}

// signalled reports whether the process ended by a signal that Ruby handles.
func (tr trace) signalled() bool {
	return tr.done != nil && tr.done.Error != nil && tr.done.Error.Class == "SignalException"
}

// reasonOf returns the reason for the failure of a run that left no report and ended in this phase.
func reasonOf(phase string) tutti.Reason {
	switch phase {
	case "facts":
		return tutti.BecauseFacts
	case "compile":
		return tutti.BecauseCompile
	case "convert", "apply":
		return tutti.BecauseCatalog
	}
	return tutti.BecauseMachinery
}

// message returns the last error as Puppet wrote it.
func (tr trace) message() string {
	switch {
	case len(tr.errors) > 0:
		return tr.errors[len(tr.errors)-1].Message
	case tr.done != nil && tr.done.Error != nil:
		return tr.done.Error.Message
	case tr.stderr != "":
		return tr.stderr
	}
	return "no message in phase " + tr.last
}

// placeRE matches the place in a message of a Puppet Server. The report of a foreign run contains this place only in
// the message. In Tutti's own runs, the launcher finds the place (puppet_x/tutti/log.rb).
var placeRE = regexp.MustCompile(`\(file: ([^,()]+?)(?:, line: (\d{1,9}))?(?:, column: (\d{1,9}))?\)`)

func failuresOf(errs []logLine) []tutti.Failure {
	var out []tutti.Failure
	seen := map[tutti.Failure]bool{}
	for _, l := range errs {
		f := tutti.Failure{File: l.File, Line: l.Line, Column: max(l.Column, 0), Message: l.Message}
		if place := placeRE.FindStringSubmatch(l.Message); f.File == "" && place != nil {
			f.File = place[1]
			f.Line, _ = strconv.Atoi(place[2]) // 0 if the line is missing
			f.Column, _ = strconv.Atoi(place[3])
		}
		if strings.HasPrefix(l.Source, "/") || strings.Contains(l.Source, "[") {
			f.Resource = l.Source
		}
		if seen[f] || len(out) == tutti.MaxFailures {
			continue
		}
		seen[f] = true
		out = append(out, f)
	}
	return out
}

func readTrace(dir string) (trace, error) {
	tr := trace{reached: map[string]bool{}}
	long, err := eachLine(filepath.Join(dir, "phase.jsonl"), func(line []byte) {
		var p phaseLine
		if json.Unmarshal(line, &p) != nil {
			tr.unreadable++
			return
		}
		if tr.firstAt.IsZero() {
			tr.firstAt = p.T
		}
		if p.T.After(tr.lastAt) { // somebody may have set the clock back
			tr.lastAt = p.T
		}
		tr.cold = cmp.Or(p.Cold, tr.cold)
		switch {
		case p.Phase == "": // the run is about to start
			return
		case p.Phase == "settings":
			tr.warm, tr.factsAge = p.Warm, 0
		case p.Phase == "facts":
			tr.factsAge = p.Age
		case p.Phase == "done":
			tr.done = &p
		case p.Phase == "gate" && p.Verdict != "":
			tr.gate = p
		case p.Phase == "compile" && len(p.Waits) > 0:
			tr.waits = p.Waits
		case p.Phase == "lock" && p.Disabled != nil:
			tr.disabled = p.Disabled
		case p.Phase == "lock" && p.WaitingFor.PID != 0:
			tr.lock = p
		}
		if p.Phase != "done" {
			if p.Phase != tr.last {
				tr.before, tr.last = tr.last, p.Phase
			}
			tr.reached[p.Phase] = true
		}
	})
	if err != nil {
		return tr, err
	}
	tr.unreadable += long
	if tr.signalled() && tr.last == "report" {
		tr.last = tr.before // after a signal Puppet still writes a report; the signal came in the phase before the report
	}
	kept := 0
	_, err = eachLine(filepath.Join(dir, LogFile), func(line []byte) {
		var l logLine
		if json.Unmarshal(line, &l) != nil || !l.isError() {
			return
		}
		if kept > maxErrors { // replace the last error, because the newest error shows what went wrong last
			tr.errors = tr.errors[:len(tr.errors)-1]
		}
		kept += len(line)
		tr.errors = append(tr.errors, l)
	})
	tr.stderr = lastOf(filepath.Join(dir, "stderr"), 600)
	return tr, err
}

// afterwordRE matches the messages that `puppet agent` logs after the reason for a failure.
var afterwordRE = regexp.MustCompile(`^(Could not retrieve catalog; skipping run|No more routes to \w+)$`)

// isError reports whether a message is about an error. Facter also logs at error level in good runs.
func (l logLine) isError() bool {
	switch l.Level {
	case "err", "alert", "emerg", "crit":
		return l.Source != "Facter" && !afterwordRE.MatchString(l.Message)
	}
	return false
}

const (
	maxLine   = 4 << 20 // bytes of a line; longer lines are not read
	maxErrors = 8 << 20 // bytes of all kept lines with errors, except the last line
)

// eachLine reads a file line by line, and counts the lines that are too long to read.
func eachLine(path string, f func(line []byte)) (long int, err error) {
	long, err = excerpt.Lines(path, maxLine, f)
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	return long, err
}

// lastOf returns the end of a file, at most n bytes.
func lastOf(path string, n int) string {
	raw, err := excerpt.Last(path, 64<<10)
	if err != nil {
		return ""
	}
	raw = bytes.TrimSpace(raw)
	return string(raw[max(0, len(raw)-n):])
}
