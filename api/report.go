package api

import (
	"context"
	"time"

	"github.com/tutti-project/tutti"
)

// Reports returns Puppet's reports about runs, if the server still has them. All text is safe for
// terminals (Plain). A value that Puppet marked as Sensitive is shown as `[redacted]`.
type Reports interface {
	Inventories
	// RunReport returns a run with its report. The argument run is the id of a run, or the name of a node, which means
	// the node's latest run. The argument run can also be the beginning or the end of an id. The part of an id must
	// have at least four characters and fit only one stored run. A node name has priority over a part of an id. The
	// error is CodeNotFound if the server has no such run. The error is CodeConflict if a part of an id fits several
	// runs.
	RunReport(ctx context.Context, run string) (RunReport, error)
	// RunLog yields the messages that Puppet logged during a run, in order. The error is CodeNotFound
	// if the server does not have the run, or does not have the run's log. The text of the error says
	// why.
	RunLog(ctx context.Context, run tutti.RunID, yield func(LogLine) error) error
	// JobChanges returns the changes and failures of a job. An empty job means the latest job. A
	// change that is the same on many nodes appears once. The error is CodeNotFound if the server has
	// no such job.
	JobChanges(ctx context.Context, job tutti.JobID) (JobChanges, error)
}

// RunReport is a run with everything that the server has about it.
type RunReport struct {
	RunView
	Attempt     int           `json:"attempt,omitempty"`
	Environment string        `json:"environment"`
	WantedAt    time.Time     `json:"wanted_at,omitzero"`
	ClaimedAt   time.Time     `json:"claimed_at,omitzero"`
	GateWhy     string        `json:"gate_why,omitempty"`
	Lost        string        `json:"lost,omitempty"`   // the reason why the run counts as lost
	Retired     bool          `json:"-"`                // the server may have deleted the run's report and log
	Result      *tutti.Result `json:"result,omitempty"` // Result is nil if the node has sent no result.
	Report      *Report       `json:"report,omitempty"`
	Missing     *Missing      `json:"missing,omitempty"` // set if Report is not set
}

// Missing is the reason why there is no report, as a word and as a sentence.
type Missing struct {
	Why  MissingReport `json:"why"`
	Text string        `json:"text"`
}

// MissingReport says why there is no report of a run.
type MissingReport string

// These are the reasons why there is no report.
const (
	ReportRunning MissingReport = "running" // the run goes on
	// the node has sent no report: the run applied nothing, was lost, or was ended
	ReportNotSent MissingReport = "not_sent"
	ReportNotKept MissingReport = "not_kept" // the server deleted the report because of its age or the number of reports
	// the server had the report and did not delete it, so its disk has lost the report
	ReportLost    MissingReport = "lost"
	ReportDamaged MissingReport = "damaged" // the node's data is not a valid report
)

// Report is a report of Puppet. Puppet 8 leaves out unchanged resources, but the counts include
// them.
type Report struct {
	Puppet      string       `json:"puppet,omitempty"`
	Status      string       `json:"status,omitempty"`
	Environment string       `json:"environment,omitempty"`
	Version     string       `json:"version,omitempty"` // version of the configuration, from config_version
	At          time.Time    `json:"at,omitzero"`       // when it began
	Counts      ReportCounts `json:"counts"`
	// times of phases of the run and of resource types, the longest first
	Times   []ReportTime `json:"times,omitempty"`
	Slowest []ReportTime `json:"slowest,omitempty"` // resources, the longest first
	// Resources are all resources except unchanged ones, sorted by file and line.
	Resources []ReportStatus `json:"resources,omitempty"`
	// number of resources that are missing in Resources, because there are too many
	LeftOut int `json:"left_out,omitempty"`
}

// ReportCounts counts the resources of a report by outcome. Each resource is in one of the first
// five counts, so their sum is the total.
type ReportCounts struct {
	Failed  int `json:"failed"`
	Skipped int `json:"skipped"`
	Changed int `json:"changed"`
	// resources that are out of sync and that Puppet did not change, because of noop or a missing
	// permission
	OutOfSync int `json:"out_of_sync"`
	Unchanged int `json:"unchanged"`
	Total     int `json:"total"`

	Corrective      int `json:"corrective"` // resources with a corrective change, made or only possible
	FailedToRestart int `json:"failed_to_restart"`
	Restarted       int `json:"restarted"`
}

// ReportTime is a name and a duration.
type ReportTime struct {
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

// These are the outcomes of a resource.
const (
	ResourceFailed    = "failed"
	ResourceSkipped   = "skipped"
	ResourceChanged   = "changed"
	ResourceOutOfSync = "out of sync"
	ResourceUnchanged = "unchanged" // an unchanged resource is in Resources only if Puppet audits the resource
)

// ReportStatus is the result of one resource.
type ReportStatus struct {
	Resource           string      `json:"resource"`
	Outcome            string      `json:"outcome"`
	FailedToRestart    bool        `json:"failed_to_restart,omitempty"`
	Corrective         bool        `json:"corrective,omitempty"`          // false if the change is intentional
	FailedDependencies []string    `json:"failed_dependencies,omitempty"` // Puppet skipped the resource because these failed
	At                 time.Time   `json:"at,omitzero"`
	Place              tutti.Place `json:"place,omitzero"`
	// Containers lists the classes and defines that contain the resource, the outermost first.
	Containers []string        `json:"containers,omitempty"`
	Seconds    float64         `json:"evaluation_s"`
	Message    string          `json:"message,omitempty"` // Message is set only for a failure without an event.
	Events     []ResourceEvent `json:"events,omitempty"`
}

// Redacted replaces each value that Puppet marks as Sensitive.
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

// JobChanges lists the changes and failures of a job.
type JobChanges struct {
	Job  tutti.JobID `json:"job"`
	Read int         `json:"read"` // number of reports
	// Changes are sorted: first the failures, then the changes on most nodes.
	Changes []SameChange `json:"changes,omitempty"`
	LeftOut int          `json:"left_out,omitempty"` // LeftOut is the number of changes that did not fit.
	Unread  []Unread     `json:"unread,omitempty"`
}

// SameChange is one change of one property, or one failure, that is equal on some nodes.
type SameChange struct {
	Resource string `json:"resource"`
	Outcome  string `json:"outcome"` // ResourceFailed, ResourceChanged or ResourceOutOfSync
	Property string `json:"property,omitempty"`
	Old      string `json:"old,omitempty"`
	New      string `json:"new,omitempty"`
	// Message is set only for a failure, and for a change without Old and New.
	Message    string           `json:"message,omitempty"`
	Corrective bool             `json:"corrective,omitempty"`
	Redacted   bool             `json:"redacted,omitempty"`
	Place      tutti.Place      `json:"place,omitzero"` // Place is the place on the first of the nodes.
	Nodes      []tutti.NodeName `json:"nodes"`
}

// Unread says why some reports of a job were not read, and how many.
type Unread struct {
	Why   string           `json:"why"`
	Runs  int              `json:"runs"`
	Nodes []tutti.NodeName `json:"nodes,omitempty"` // the first few nodes
}
