package puppet

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
	puppetreport "github.com/tutti-project/tutti/internal/report"
)

// report contains the part of Puppet's report that determines an outcome. The whole report is
// stored as a blob.
type report struct {
	TransactionUUID      string                    `json:"transaction_uuid"`
	Status               string                    `json:"status"`
	NoopPending          bool                      `json:"noop_pending"`
	CorrectiveChange     bool                      `json:"corrective_change"`
	CachedCatalogStatus  string                    `json:"cached_catalog_status"`
	TransactionCompleted *bool                     `json:"transaction_completed"`
	ResourceStatuses     map[string]resourceStatus `json:"resource_statuses"`
	Metrics              struct {
		Resources metricValues `json:"resources"`
		Time      metricValues `json:"time"`
	} `json:"metrics"`
}

// total returns the number of resources. Puppet 8 leaves unchanged resources out of the statuses and counts them only
// in the metrics.
func (r report) total() int { return max(r.metric("total"), len(r.ResourceStatuses)) }

// metric returns one of the report's numbers of resources. The method returns 0 if the
// report does not contain the number.
func (r report) metric(name string) int {
	n, _ := r.Metrics.Resources.of(name)
	return int(min(max(n, 0), math.MaxInt32))
}

// metricValues are the numbers of one metric.
type metricValues struct {
	Values [][3]any `json:"values"` // name, label, number
}

func (m metricValues) of(name string) (number float64, there bool) {
	for _, v := range m.Values {
		if n, ok := v[2].(float64); ok && v[0] == name {
			return n, true
		}
	}
	return 0, false
}

type resourceStatus struct {
	Resource        string `json:"resource"`
	File            string `json:"file"`
	Line            int    `json:"line"`
	Changed         bool   `json:"changed"`
	Failed          bool   `json:"failed"`
	FailedToRestart bool   `json:"failed_to_restart"`
	Skipped         bool   `json:"skipped"`
	OutOfSync       bool   `json:"out_of_sync"`
	Events          []struct {
		Status  string `json:"status"`
		Message string `json:"message"`
	} `json:"events"`
}

// maxJudged bounds a report that is judged, in bytes, without its messages. The bound is larger than the server's
// limit. So a run with very many resources is judged even if its report is too large to send.
const maxJudged = 2 * puppetreport.Max

func readReport(dir string) (report, error) {
	var r report
	raw, err := excerpt.With(filepath.Join(dir, ReportFile), maxJudged, func(file io.Reader, size, most int64) ([]byte, error) {
		if size > puppetreport.Max {
			return puppetreport.Trim(file, int(most))
		}
		return puppetreport.Keep(file, size, most)
	})
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(raw, &r)
}

// ReportFile and LogFile are files in a run's directory that people can read.
const (
	ReportFile = "report.json"
	LogFile    = "log.jsonl"
)

func judgeReport(out *tutti.Result, r report, tr trace) {
	out.NoopPending, out.Corrective = r.NoopPending, r.CorrectiveChange
	out.Counts.Total = r.total()
	for _, s := range r.ResourceStatuses {
		count(&out.Counts, s)
	}
	out.Failures, out.Changes = resourceFailures(r, tr), noopChanges(r)
	switch {
	case r.CachedCatalogStatus == "on_failure":
		fail(out, tutti.BecauseCompile, "an old catalog was applied because the new one did not compile")
	case r.CachedCatalogStatus == "explicitly_requested":
		fail(out, tutti.BecauseCompile, "a cached catalog was applied, although a new one was requested")
	case tr.done == nil || tr.signalled():
		out.Outcome, out.Message = tutti.Interrupted, "somebody ended the Puppet process in phase "+tr.last+": "+tr.message()
	case r.Status == "failed" && tr.reached["prerun"] && !tr.reached["apply"]:
		fail(out, tutti.BecauseRefused, tr.message())
	case !tr.reached["gate"]: // `puppet agent` also reports runs that never got a catalog
		fail(out, reasonOf(tr.before), tr.message())
		out.Failures, out.Phase = failuresOf(tr.errors), tr.before
	case r.Status == "failed" && tr.cycle() != "":
		fail(out, tutti.BecauseCatalog, tr.cycle())
	case r.onlyWaits() && len(tr.waits) > 0:
		out.Failures = nil
		wait(out, tr.waits)
	case r.Status == "failed" && out.Counts.Failed > 0:
		fail(out, tutti.BecauseResources, plural(out.Counts.Failed, "resource")+" failed")
	case r.Status == "failed":
		fail(out, tutti.BecauseCatalog, tr.message())
		out.Failures = failuresOf(tr.errors)
	case r.TransactionCompleted != nil && !*r.TransactionCompleted:
		fail(out, tutti.BecauseCatalog, "the catalog was not applied to its end: "+tr.message())
	case r.Status != "changed" && r.Status != "unchanged":
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report has the unknown status %q", r.Status))
	default:
		judgeGood(out, r, tr)
	}
}

// onlyWaits reports whether the whole catalog was applied and the only failures are placeholders. A placeholder
// stands for a block that was left out of the catalog.
func (r report) onlyWaits() bool {
	if r.Status != "failed" || r.TransactionCompleted == nil || !*r.TransactionCompleted {
		return false
	}
	some := false
	for name, s := range r.ResourceStatuses {
		if !s.Failed && !s.FailedToRestart {
			continue
		}
		if !strings.HasPrefix(name, "Tutti_waiting[") {
			return false
		}
		some = true
	}
	return some
}

// exitOf contains the exit codes that Puppet uses with a good report (--detailed-exitcodes).
var exitOf = map[string]int{"unchanged": 0, "changed": 2}

// judgeGood accepts a good report only if all other files of the run agree with it.
func judgeGood(out *tutti.Result, r report, tr trace) {
	exit := -1
	if tr.done.Exit != nil {
		exit = *tr.done.Exit
	}
	switch {
	case tr.unreadable > 0:
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report says %s, and %s of phase.jsonl cannot be read", r.Status, plural(tr.unreadable, "line")))
	case exit != exitOf[r.Status]:
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report says %s, and Puppet's exit code %d: %s", r.Status, exit, tr.message()))
	case !tr.reached["apply"]:
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report says %s, and Puppet applied nothing", r.Status))
	case out.Counts.Failed > 0 || r.metric("failed") > 0 || r.metric("failed_to_restart") > 0:
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report says %s, and has resources that failed", r.Status))
	default:
		out.Outcome = tutti.Outcome(r.Status)
	}
}

func count(c *tutti.Counts, s resourceStatus) {
	if s.Changed {
		c.Changed++
	}
	if s.Failed || s.FailedToRestart {
		c.Failed++
	}
	if s.Skipped {
		c.Skipped++
	}
	if s.OutOfSync {
		c.OutOfSync++
	}
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// resourceFailures lists the failed resources, by file and line. The message comes from the failed event. If there is
// no failed event, the message comes from the log.
func resourceFailures(r report, tr trace) []tutti.Failure {
	var out []tutti.Failure
	for name, s := range r.ResourceStatuses {
		if !s.Failed && !s.FailedToRestart {
			continue
		}
		f := tutti.Failure{Resource: cmp.Or(s.Resource, name), File: s.File, Line: s.Line}
		for _, e := range s.Events {
			if e.Status == "failure" && f.Message == "" {
				f.Message = e.Message
			}
		}
		f.Message = tutti.CutJournal(cmp.Or(f.Message, tr.said(f.Resource), "failed without a message"))
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b tutti.Failure) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Resource, b.Resource))
	})
	return out[:min(len(out), tutti.MaxFailures)]
}

// noopChanges lists what a noop run would have changed, by file and line.
func noopChanges(r report) []tutti.Change {
	var out []tutti.Change
	for name, s := range r.ResourceStatuses {
		var how []string
		for _, e := range s.Events {
			if e.Status == "noop" {
				text, corrective := strings.CutSuffix(e.Message, " (corrective)")
				if text = strings.TrimSuffix(text, " (noop)"); corrective {
					text += " (corrective)"
				}
				how = append(how, text)
			}
		}
		if len(how) > 0 {
			out = append(out, tutti.Change{Resource: cmp.Or(s.Resource, name), File: s.File, Line: s.Line, Message: strings.Join(how, "; ")})
		}
	}
	slices.SortFunc(out, func(a, b tutti.Change) int {
		return cmp.Or(cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Resource, b.Resource))
	})
	return out[:min(len(out), tutti.MaxFailures)]
}

// cycle returns Puppet's message about a dependency cycle, if there is one. In this case the report marks each resource
// of the cycle as failed.
func (tr trace) cycle() string {
	for _, l := range tr.errors {
		if strings.Contains(l.Message, "dependency cycle") {
			return l.Message
		}
	}
	return ""
}

// The method `said` returns the first error in the log that belongs to a resource.
func (tr trace) said(resource string) string {
	for _, l := range tr.errors {
		if l.Source != "" && strings.Contains(l.Source, resource) {
			return l.Message
		}
	}
	return ""
}
