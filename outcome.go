package tutti

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Outcome says how a run ended.
type Outcome string

// These are the outcomes of a run (glossary).
const (
	Unchanged   Outcome = "unchanged"
	Changed     Outcome = "changed"
	Failed      Outcome = "failed"      // with a Reason
	Waiting     Outcome = "waiting"     // a query has no answer yet
	Interrupted Outcome = "interrupted" // the process is gone and left no result
	Lost        Outcome = "lost"        // the node is silent
	Skipped     Outcome = "skipped"
)

// Reason says why a run failed.
type Reason string

// The reasons of Failed.
const (
	BecauseResources Reason = "resources" // resources failed while applying
	BecauseCompile   Reason = "compile"   // no catalog
	// a catalog that cannot be applied, for example because of a dependency cycle or an invalid resource
	BecauseCatalog   Reason = "catalog"
	BecauseFacts     Reason = "facts"     // no facts
	BecauseRefused   Reason = "refused"   // the node or the server did not allow it
	BecauseMachinery Reason = "machinery" // Puppet or code is missing, the disk is full, or there is no report
	BecauseTimeout   Reason = "timeout"   // the step's timeout
)

// Outcomes and Reasons list all values, in the order of the glossary.
var (
	Outcomes = []Outcome{Unchanged, Changed, Failed, Waiting, Interrupted, Lost, Skipped}
	Reasons  = []Reason{BecauseResources, BecauseCompile, BecauseCatalog, BecauseFacts, BecauseRefused, BecauseMachinery, BecauseTimeout}
)

// Good reports whether a run with this outcome was successful, so that nobody needs to repeat it.
func (o Outcome) Good() bool { return o == Unchanged || o == Changed }

// Mode says what a run may do.
type Mode string

// The modes. Only ModeApply changes nodes and publishes data for all nodes.
const (
	ModeApply   Mode = "apply"
	ModeNoop    Mode = "noop"
	ModeCompile Mode = "compile"
)

// Counts are the numbers of resources in a report, by their outcome.
type Counts struct {
	Total     int `json:"total"`
	Changed   int `json:"changed"`
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
	OutOfSync int `json:"out_of_sync"`
}

// Failure is one thing that failed during a run, with the details that Puppet reports.
type Failure struct {
	Resource string `json:"resource,omitempty"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	// Column is the column in which a compile failed, counted from 1. Column is 0 if Puppet or an earlier agent did
	// not report the column.
	Column  int    `json:"column,omitempty"`
	Message string `json:"message"`
}

// String returns the failure in one line: what, why, where. If Puppet's message has the place, the line has the place
// only once.
func (f Failure) String() string {
	message := f.Message
	if f.Column > 0 {
		message = strings.Replace(message, fmt.Sprintf(" (file: %s, line: %d, column: %d)", f.File, f.Line, f.Column), "", 1)
	}
	text := OneLine(WithoutJournal(message))
	if f.Resource != "" {
		text = InLine(f.Resource) + ": " + text
	}
	if f.File != "" {
		text += " (" + FileLine(InLine(InEnvironment(f.File)), f.Line, f.Column) + ")"
	}
	return text
}

// FileLine returns FILE:LINE:COLUMN, or FILE:LINE if the column is unknown.
func FileLine(file string, line, column int) string {
	if column > 0 {
		return fmt.Sprintf("%s:%d:%d", file, line, column)
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// Says returns the failure that belongs to the result's message, in one line with its place. If no failure has this
// message, Says returns the message alone.
func (r Result) Says() string {
	for _, f := range r.Failures {
		if strings.HasPrefix(f.Message, r.Message) {
			return f.String()
		}
	}
	return OneLine(r.Message)
}

// Change is one resource that a noop run would have changed. Message says in Puppet's words how the resource would
// have changed.
type Change struct {
	Resource string `json:"resource"`
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Message  string `json:"message"`
}

// String returns the change in one line, in the form of a failure.
func (c Change) String() string {
	return Failure{Resource: c.Resource, File: c.File, Line: c.Line, Message: c.Message}.String()
}

// Wait is a question that has no answer yet, although the run needs one. A hiera question without a
// key means the whole hiera level.
type Wait struct {
	Query Query `json:"query"`
	At    Place `json:"at,omitzero"`
}

// maxWait bounds the texts of one Wait, in bytes.
const maxWait = 8 << 10

// Validate refuses a question for which a run cannot wait.
func (w Wait) Validate() error {
	var good bool
	switch w.Query.Kind {
	case QueryValue:
		good = w.Query.Key != ""
	case QueryHiera:
		good = w.Query.Type == ""
	case QueryCollect:
		good = w.Query.Type != "" && w.Query.Key == ""
	case QueryENC:
		good = w.Query.Key == "" && w.Query.Type == ""
	case QueryGroups, QueryPublished: // a question of these kinds always has an answer
	}
	size := len(w.Query.Key) + len(w.Query.Type) + len(w.Query.Filter) + len(w.At.Resource) + len(w.At.File)
	if !good || size > maxWait {
		return Errorf(CodeInvalid, "a run cannot wait for a question of kind %q with %d bytes, at most %d", string(w.Query.Kind), size, maxWait)
	}
	return nil
}

// RoomForWaits returns the valid questions, at most as many as a Result may have.
func RoomForWaits(waits []Wait) []Wait {
	var out []Wait
	for _, w := range waits {
		if w.Validate() == nil && len(out) < MaxFailures {
			out = append(out, w)
		}
	}
	return out
}

// MaxFailures bounds the numbers of failures, waits and noop changes in a Result. The report and
// the record contain all failures, waits and changes.
const MaxFailures = 20

// Result says how a run ended. The agent measures and judges the run. Report, Log and Record name
// blobs. The server must have these blobs before it accepts the result.
type Result struct {
	Run         RunID     `json:"run"`
	Outcome     Outcome   `json:"outcome"`
	Reason      Reason    `json:"reason,omitempty"`
	Message     string    `json:"message,omitempty"`
	Failures    []Failure `json:"failures,omitempty"`
	Waits       []Wait    `json:"waits,omitempty"`      // the questions for which a waiting run has no answer
	Owed        []Owed    `json:"owed,omitempty"`       // the refreshes that the node owed after this run in mode apply
	AskedMore   bool      `json:"asked_more,omitempty"` // the run asked further questions after its gate
	Stopped     bool      `json:"stopped,omitempty"`    // the gate stopped the run, and Puppet applied nothing
	NoopPending bool      `json:"noop_pending,omitempty"`
	Changes     []Change  `json:"changes,omitempty"` // the changes that a noop run would make
	Corrective  bool      `json:"corrective,omitempty"`
	Overlapped  bool      `json:"overlapped,omitempty"` // a Puppet that takes no lock ran at the same time
	Degraded    bool      `json:"degraded,omitempty"`
	Phase       string    `json:"phase,omitempty"` // the last phase that the run reached
	Warm        bool      `json:"warm,omitempty"`  // the run was a fork of a process that had Puppet loaded
	Cold        string    `json:"cold,omitempty"`  // the reason why the run was not warm
	// FactsAge is the age of the facts when the run began. FactsAge is 0 if the run collected its own facts.
	FactsAge  time.Duration `json:"facts_age,omitempty"`
	Counts    Counts        `json:"counts"`
	StartedAt time.Time     `json:"started_at"`
	EndedAt   time.Time     `json:"ended_at"`
	// Clock is the moment when the agent began the run. For a run that Tutti did not order, Clock is the moment when
	// the agent saw the end of the run.
	Clock  Clock  `json:"clock,omitzero"`
	Report Digest `json:"report,omitempty"`
	Log    Digest `json:"log,omitempty"`
	Record Digest `json:"record,omitempty"`
}

// Clock is a position in the order in which an agent has seen events on its node. The count only grows, even if
// somebody changes the node's time. The Clock is zero if the agent does not count events.
type Clock struct {
	// Line is a UUID. An agent that has lost its count begins a new count with another Line. Positions of two different
	// lines have no order.
	Line  string `json:"line"`
	Count uint64 `json:"count"`
}

// Before reports whether a position certainly comes before another one.
func (c Clock) Before(o Clock) bool { return c.Line != "" && c.Line == o.Line && c.Count < o.Count }

// Duration returns how long the Puppet process lasted, as the agent measured it.
func (r Result) Duration() time.Duration { return r.EndedAt.Sub(r.StartedAt) }

// PassedGate reports whether the run has passed its gate, so that it may have changed something.
func (r Result) PassedGate() bool {
	if r.Stopped {
		return false
	}
	switch r.Phase {
	case "convert", "prerun", "apply", "report":
		return true
	}
	return r.Outcome.Good()
}

// Tells reports whether the run has a report with the results of the node's resources.
func (r Result) Tells() bool { return r.Report != "" && r.PassedGate() }

// Foretells reports whether the result of a preview (Order.Previews) predicts the result of a full run. A preview can
// predict changes, and failures because of code, answers or facts. A successful compile predicts nothing about the
// node.
func (r Result) Foretells(mode Mode) bool {
	switch {
	case r.Stopped:
		return false
	case r.Outcome == Failed:
		return r.Reason != BecauseMachinery && r.Reason != BecauseTimeout
	}
	return mode == ModeNoop && r.Outcome.Good() && r.Tells()
}

// Validate checks a node's report about a run.
func (r Result) Validate() error {
	switch {
	case r.Run.Validate() != nil:
		return r.Run.Validate()
	case !slices.Contains(Outcomes, r.Outcome) && !r.Stopped:
		return Errorf(CodeInvalid, "result of run %s: unknown outcome %q", r.Run, string(r.Outcome))
	case (r.Outcome == Failed) != (r.Reason != ""):
		return Errorf(CodeInvalid, "result of run %s: outcome %q with reason %q", r.Run, string(r.Outcome), string(r.Reason))
	case r.Reason != "" && !slices.Contains(Reasons, r.Reason):
		return Errorf(CodeInvalid, "result of run %s: unknown reason %q", r.Run, string(r.Reason))
	case len(r.Failures) > MaxFailures:
		return Errorf(CodeInvalid, "result of run %s: %d failures, at most %d", r.Run, len(r.Failures), MaxFailures)
	case len(r.Changes) > MaxFailures:
		return Errorf(CodeInvalid, "result of run %s: %d changes, at most %d", r.Run, len(r.Changes), MaxFailures)
	case len(r.Waits) > MaxFailures:
		return Errorf(CodeInvalid, "result of run %s: waits for %d questions, at most %d", r.Run, len(r.Waits), MaxFailures)
	case r.EndedAt.Before(r.StartedAt):
		return Errorf(CodeInvalid, "result of run %s: ended before it started", r.Run)
	}
	if r.Clock != (Clock{}) {
		if err := RunID(r.Clock.Line).Validate(); err != nil {
			return Wrap(CodeInvalid, err, "result of run %s: clock", r.Run)
		}
	}
	for _, w := range r.Waits {
		if err := w.Validate(); err != nil {
			return Wrap(CodeInvalid, err, "result of run %s", r.Run)
		}
	}
	if err := r.validOwed(); err != nil {
		return err
	}
	for _, d := range r.Attachments() {
		if err := d.Validate(); err != nil {
			return err
		}
	}
	return nil
}

// Attachments returns the digests of the blobs that belong to the result.
func (r Result) Attachments() []Digest {
	return slices.DeleteFunc([]Digest{r.Report, r.Log, r.Record}, func(d Digest) bool { return d == "" })
}
