package report

import (
	"encoding/base64"
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

// status is Puppet's status of one resource.
type status struct {
	File         string            `json:"file"`
	Line         int               `json:"line"`
	At           time.Time         `json:"time"`
	Containment  []string          `json:"containment_path"`
	Seconds      float64           `json:"evaluation_time"`
	Failed       bool              `json:"failed"`
	Restart      bool              `json:"failed_to_restart"`
	Skipped      bool              `json:"skipped"`
	Changed      bool              `json:"changed"`
	OutOfSync    bool              `json:"out_of_sync"`
	Corrective   bool              `json:"corrective_change"`
	Dependencies []string          `json:"failed_dependencies"`
	Events       []json.RawMessage `json:"events"`

	events []event // the first few events
}

// event is one event of a property.
type event struct {
	Property   string          `json:"property"`
	Status     string          `json:"status"`
	Message    string          `json:"message"`
	Previous   json.RawMessage `json:"previous_value"`
	Desired    json.RawMessage `json:"desired_value"`
	At         time.Time       `json:"time"`
	Corrective bool            `json:"corrective_change"`
	Audited    bool            `json:"audited"`
	Redacted   bool            `json:"redacted"`
}

// statuses reads the statuses of the resources one after the other.
func statuses(f func(name string, st status) error) func(*json.Decoder) error {
	return func(d *json.Decoder) error {
		return members(d, func(name string) error {
			var st status
			if err := part(d, &st); err != nil {
				return tutti.Wrap(tutti.CodeInvalid, err, "%s", plain(name))
			}
			for _, raw := range st.Events[:min(len(st.Events), maxEvents)] {
				var e event
				if err := json.Unmarshal(raw, &e); err != nil {
					return tutti.Wrap(tutti.CodeInvalid, err, "%s: an event", plain(name))
				}
				st.events = append(st.events, e)
			}
			return f(name, st)
		})
	}
}

func (st status) outcome() string {
	switch {
	case st.Failed || st.Restart:
		return api.ResourceFailed
	case st.Skipped:
		return api.ResourceSkipped
	case st.Changed:
		return api.ResourceChanged
	case st.OutOfSync:
		return api.ResourceOutOfSync
	}
	return api.ResourceUnchanged
}

func (st status) seconds() float64 { return max(st.Seconds, 0) }

// plain returns the status in the form that people see.
func (st status) plain(name string) api.ReportStatus {
	out := api.ReportStatus{
		Resource: plain(name), Outcome: st.outcome(), FailedToRestart: st.Restart, Corrective: st.Corrective, At: sane(st.At),
		Place: tutti.Place{File: plain(st.File), Line: max(st.Line, 0)}, Containers: containers(st.Containment), Seconds: st.seconds(),
	}
	for _, ref := range st.Dependencies[:min(len(st.Dependencies), maxNames)] {
		out.FailedDependencies = append(out.FailedDependencies, plain(ref))
	}
	for _, e := range st.events {
		out.Events = append(out.Events, e.plain())
	}
	return out
}

// plain returns the event in the form that people see. Puppet has replaced Sensitive values by `[redacted]`.
// But some types write Sensitive values in plain text. So if an event is marked as redacted, this method
// removes its values.
func (e event) plain() api.ResourceEvent {
	out := api.ResourceEvent{
		Property: plain(e.Property), Status: plain(e.Status), Message: plain(tutti.CutJournal(e.Message)), Old: valueText(e.Previous), New: valueText(e.Desired),
		At: sane(e.At), Corrective: e.Corrective, Audited: e.Audited, Redacted: e.Redacted,
	}
	if !e.Redacted {
		return out
	}
	for _, text := range []*string{&out.Old, &out.New} {
		if *text != "" {
			*text = api.Redacted
		}
	}
	if out.Status != "failure" { // a failed event's message is the only place with the reason
		out.Message = api.Redacted
	}
	return out
}

// checksum matches the text that Puppet writes for the content of a file.
var checksum = regexp.MustCompile(`^\{[a-z0-9]+\}[0-9a-f]+$`)

// valueText returns a value as people read it. A text has no quotes, and null is empty. If Puppet has mistaken a
// checksum for binary data and encoded it, valueText decodes the checksum.
func valueText(raw json.RawMessage) string {
	var text string
	if len(raw) > 0 && json.Unmarshal(raw, &text) != nil {
		return plain(string(raw))
	}
	if decoded, err := base64.StdEncoding.DecodeString(text); err == nil && checksum.Match(decoded) {
		text = string(decoded)
	}
	return plain(text)
}

// containers returns the classes and defines of a containment path. In such a path, the first
// element is a stage, the last element is the resource itself, and a class is written without
// `Class[…]`.
func containers(path []string) []string {
	var out []string
	for _, name := range path[:min(max(0, len(path)-1), maxNames)] {
		switch {
		case strings.HasPrefix(name, "Stage["):
			continue
		case name == "Main":
			name = "main"
			fallthrough
		case !strings.HasSuffix(name, "]"):
			name = "Class[" + name + "]"
		}
		out = append(out, plain(name))
	}
	return out
}

// size returns how many bytes of a resource's text are kept, including an estimate of their overhead.
func size(st api.ReportStatus) int {
	const each = 200
	n := each + len(st.Resource) + len(st.Place.File)
	for _, name := range slices.Concat(st.Containers, st.FailedDependencies) {
		n += len(name)
	}
	for _, e := range st.Events {
		n += each + len(e.Property) + len(e.Status) + len(e.Message) + len(e.Old) + len(e.New)
	}
	return n
}

// failing matches the log message of a resource whose dependency has failed.
var failing = regexp.MustCompile(`(?s)^Dependency (.+) has failures: true$`)

// The function `explain` finds in the log the reasons that are missing in a status: why a
// resource was skipped, or why it failed without an event.
func explain(st *api.ReportStatus, log []api.LogLine) {
	said := st.Outcome != api.ResourceFailed || slices.ContainsFunc(st.Events, func(e api.ResourceEvent) bool { return e.Status == "failure" })
	skipped := st.Outcome == api.ResourceSkipped && len(st.FailedDependencies) == 0
	if said && !skipped {
		return
	}
	for _, l := range log {
		if !strings.HasSuffix(l.Source, "/"+st.Resource) && l.Source != st.Resource {
			continue
		}
		if parts := failing.FindStringSubmatch(l.Message); skipped && parts != nil && len(st.FailedDependencies) < maxNames {
			st.FailedDependencies = append(st.FailedDependencies, parts[1])
		}
		if !said && st.Message == "" && l.Level == "err" {
			st.Message = l.Message
		}
	}
}
