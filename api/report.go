package api

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
)

// Reports returns what Puppet reported about runs, as far as it is kept. All text is safe for
// terminals (Plain), and a value that Puppet marked Sensitive is `[redacted]`.
type Reports interface {
	// RunReport returns a run and its report. The run is named by its id, by the name
	// of a node, whose latest run it is, or by a beginning or an end of its id, of four
	// characters or more, that no other run has which is kept. A name comes before a
	// part of an id. CodeNotFound: none is kept. CodeConflict: several are.
	RunReport(ctx context.Context, run string) (RunReport, error)
	// RunLog yields what Puppet logged in a run, in order. CodeNotFound: no such run
	// is kept, or there is no log of it; the error says why.
	RunLog(ctx context.Context, run tutti.RunID, yield func(LogLine) error) error
	// JobChanges returns what changed and failed in a job (empty: the latest), the
	// same on many nodes once. CodeNotFound: no such job is kept.
	JobChanges(ctx context.Context, job tutti.JobID) (JobChanges, error)
}

// RunReport is a run with all that is kept of it.
type RunReport struct {
	RunView
	Attempt     int           `json:"attempt,omitempty"`
	Environment string        `json:"environment"`
	WantedAt    time.Time     `json:"wanted_at,omitzero"`
	ClaimedAt   time.Time     `json:"claimed_at,omitzero"`
	GateWhy     string        `json:"gate_why,omitempty"`
	Lost        string        `json:"lost,omitempty"`   // why it was given up
	Retired     bool          `json:"-"`                // the server may have let its report and its log go
	Result      *tutti.Result `json:"result,omitempty"` // nil: the node has sent none
	Report      *Report       `json:"report,omitempty"`
	Missing     *Missing      `json:"missing,omitempty"` // set without Report
}

// Missing is why there is no report, in a word and in a sentence.
type Missing struct {
	Why  MissingReport `json:"why"`
	Text string        `json:"text"`
}

// MissingReport says why there is no report of a run.
type MissingReport string

// The reasons why there is no report.
const (
	ReportRunning MissingReport = "running"  // the run goes on
	ReportNotSent MissingReport = "not_sent" // the node has sent none: it applied nothing, was lost or was ended
	ReportNotKept MissingReport = "not_kept" // it was let go, by age or count
	ReportLost    MissingReport = "lost"     // the server had it and did not let it go: its disk has lost it
	ReportDamaged MissingReport = "damaged"  // what the node sent is no report
)

// Report is a report of Puppet. Puppet 8 leaves out what did not change; it is
// counted all the same.
type Report struct {
	Puppet      string         `json:"puppet,omitempty"`
	Status      string         `json:"status,omitempty"`
	Environment string         `json:"environment,omitempty"`
	Version     string         `json:"version,omitempty"` // of the configuration, as config_version says
	At          time.Time      `json:"at,omitzero"`       // when it began
	Counts      ReportCounts   `json:"counts"`
	Times       []ReportTime   `json:"times,omitempty"`     // of parts of the run and of types, the longest first
	Slowest     []ReportTime   `json:"slowest,omitempty"`   // resources, the longest first
	Resources   []ReportStatus `json:"resources,omitempty"` // all but the unchanged, by file and line
	LeftOut     int            `json:"left_out,omitempty"`  // of Resources, because there are too many
}

// ReportCounts are the resources of a report by outcome: each is counted in one of
// the first five, and these make the total.
type ReportCounts struct {
	Failed    int `json:"failed"`
	Skipped   int `json:"skipped"`
	Changed   int `json:"changed"`
	OutOfSync int `json:"out_of_sync"` // not changed, since noop or not allowed to
	Unchanged int `json:"unchanged"`
	Total     int `json:"total"`

	Corrective      int `json:"corrective"` // of those changed and out of sync
	FailedToRestart int `json:"failed_to_restart"`
	Restarted       int `json:"restarted"`
}

// ReportTime is how long something took.
type ReportTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// The outcomes of a resource.
const (
	ResourceFailed    = "failed"
	ResourceSkipped   = "skipped"
	ResourceChanged   = "changed"
	ResourceOutOfSync = "out of sync"
	ResourceUnchanged = "unchanged" // in Resources only if Puppet audits it
)

// ReportStatus is what became of one resource.
type ReportStatus struct {
	Resource           string          `json:"resource"`
	Outcome            string          `json:"outcome"`
	FailedToRestart    bool            `json:"failed_to_restart,omitempty"`
	Corrective         bool            `json:"corrective,omitempty"`          // else intentional
	FailedDependencies []string        `json:"failed_dependencies,omitempty"` // why it was skipped
	At                 time.Time       `json:"at,omitzero"`
	Place              tutti.Place     `json:"place,omitzero"`
	Containers         []string        `json:"containers,omitempty"` // classes and defines, the outermost first
	Seconds            float64         `json:"evaluation_s"`
	Message            string          `json:"message,omitempty"` // of a failure without an event
	Events             []ResourceEvent `json:"events,omitempty"`
}

// Redacted stands where Puppet says that a value is Sensitive.
const Redacted = "[redacted]"

// LogLine is one message of Puppet's log.
type LogLine struct {
	At      time.Time `json:"at,omitzero"`
	Level   string    `json:"level"`
	Message string    `json:"message"`
	Source  string    `json:"source,omitempty"`
	File    string    `json:"file,omitempty"`
	Line    int       `json:"line,omitempty"`
	Column  int       `json:"column,omitempty"` // 0: not known
}

// JobChanges is what changed and failed in a job.
type JobChanges struct {
	Job     tutti.JobID  `json:"job"`
	Read    int          `json:"read"`               // reports
	Changes []SameChange `json:"changes,omitempty"`  // failed ones first, then those on most nodes
	LeftOut int          `json:"left_out,omitempty"` // changes for which there was no room
	Unread  []Unread     `json:"unread,omitempty"`
}

// SameChange is one change of one property, or one failure, on some nodes.
type SameChange struct {
	Resource   string           `json:"resource"`
	Outcome    string           `json:"outcome"` // ResourceFailed, ResourceChanged or ResourceOutOfSync
	Property   string           `json:"property,omitempty"`
	Old        string           `json:"old,omitempty"`
	New        string           `json:"new,omitempty"`
	Message    string           `json:"message,omitempty"` // of a failure, and of what has neither Old nor New
	Corrective bool             `json:"corrective,omitempty"`
	Redacted   bool             `json:"redacted,omitempty"`
	Place      tutti.Place      `json:"place,omitzero"` // on the first of the nodes
	Nodes      []tutti.NodeName `json:"nodes"`
}

// Unread says why reports of a job were not read, and of how many runs.
type Unread struct {
	Why   string           `json:"why"`
	Runs  int              `json:"runs"`
	Nodes []tutti.NodeName `json:"nodes,omitempty"` // the first few
}
