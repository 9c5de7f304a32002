package puppet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/excerpt"
	puppetreport "github.com/tutti-project/tutti/internal/report"
)

// ReportFiles returns the paths at which Puppet writes the report of its last run, whoever started the run. The first
// path is that of `puppet agent`. `puppet apply` reads the section `user` of puppet.conf instead of the section
// `agent`. If this gives `puppet apply` a different path, ReportFiles returns this path as the second path. The
// result `conf` is the path of puppet.conf.
func (l Local) ReportFiles() (files []string, conf string, err error) {
	c, err := readConf(l.Root)
	if err != nil {
		return nil, "", err
	}
	for _, section := range []string{"agent", "user"} {
		file, err := c.path(c.settings(section), "lastrunreport")
		if err != nil {
			return nil, "", err
		}
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files, c.file, nil
}

// LastReport reads the report in one of these files. LastReport returns the run and the report as JSON. LastReport judges the run only
// by the report. LastReport returns fs.ErrNotExist if there is no report. LastReport returns CodeInvalid or
// CodeDamaged if the report is not from this machine. A report is from this machine if its host is the node's
// name or the certname that Puppet has for this machine.
func (l Local) LastReport(ctx context.Context, node tutti.NodeName, file string) (tutti.Foreign, []byte, error) {
	c, err := readConf(l.Root)
	if err != nil {
		return tutti.Foreign{}, nil, err
	}
	raw, err := excerpt.Read(file, puppetreport.MaxYAML)
	if err != nil {
		return tutti.Foreign{}, nil, err
	}
	asJSON, err := puppetreport.FromYAML(raw)
	if err != nil {
		return tutti.Foreign{}, nil, tutti.Wrap("", err, "%s", file)
	}
	out, err := judgeForeign(asJSON, c.settings("agent")["environment"], func(host string) bool {
		if host == string(node) {
			return true
		}
		name, _, err := l.Certname(ctx) // if no certname is configured, puppet apply and cron use the host's full name
		return err == nil && host == name
	})
	return out, asJSON, tutti.Wrap("", err, "%s", file)
}

// foreignReport has more fields than the type report, because a foreign run leaves no other files
// to read.
type foreignReport struct {
	report
	Host        string    `json:"host"`
	Time        time.Time `json:"time"` // when the run began
	Version     string    `json:"puppet_version"`
	Environment string    `json:"environment"`
	Noop        bool      `json:"noop"`
	Logs        []logLine `json:"logs"`
}

// maxForeign is the longest accepted duration of a foreign run.
const maxForeign = 24 * time.Hour

// judgeForeign judges a report by those rules of Tutti's own runs that need only the report. The
// function `ours` returns true if a report with this host is from this machine.
func judgeForeign(raw []byte, environment string, ours func(host string) bool) (tutti.Foreign, error) {
	var r foreignReport
	if err := json.Unmarshal(raw, &r); err != nil {
		return tutti.Foreign{}, tutti.Wrap(tutti.CodeInvalid, err, "this is no report of Puppet")
	}
	if !ours(r.Host) {
		return tutti.Foreign{}, tutti.Errorf(tutti.CodeInvalid, "this is a report of %q, which is not a name of this machine", short(r.Host))
	}
	if year := r.Time.UTC().Year(); year < 1970 || year > 9999 {
		return tutti.Foreign{}, tutti.Errorf(tutti.CodeInvalid, "a report of the year %d", year)
	}
	took, _ := r.Metrics.Time.of("total")
	began := r.Time.UTC()
	out := tutti.Foreign{
		Result: tutti.Result{
			Run: tutti.RunID(r.TransactionUUID), NoopPending: r.NoopPending, Corrective: r.CorrectiveChange,
			StartedAt: began, EndedAt: began.Add(time.Duration(min(max(took, 0), maxForeign.Seconds()) * float64(time.Second))), Report: tutti.DigestOf(raw),
		},
		Environment: short(r.Environment), Puppet: short(r.Version), Noop: r.Noop,
	}
	r.judge(&out.Result)
	out.Whole = out.Result.Outcome.Good() && r.whole(environment)
	shorten(&out.Result)
	return out, out.Validate()
}

func (r foreignReport) judge(out *tutti.Result) {
	tr := trace{stderr: "the report does not say why"} // the message if the log contains no error
	for _, l := range r.Logs {
		if l.isError() {
			tr.errors = append(tr.errors, l)
		}
	}
	out.Counts.Total = r.total()
	for _, s := range r.ResourceStatuses {
		count(&out.Counts, s)
	}
	out.Failures, out.Changes = resourceFailures(r.report, tr), noopChanges(r.report)
	switch {
	case r.CachedCatalogStatus == "on_failure":
		fail(out, tutti.BecauseCompile, "an old catalog was applied because the new one did not compile")
	case !slices.Contains([]string{"failed", "changed", "unchanged"}, r.Status):
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report has the unknown status %q", r.Status))
	case r.total() == 0: // every catalog has resources, because Puppet's own stages count, too
		fail(out, tr.withoutCatalog(), tr.message())
		out.Failures = failuresOf(tr.errors)
	case r.Status == "failed" && tr.cycle() != "":
		fail(out, tutti.BecauseCatalog, tr.cycle())
	case r.Status == "failed" && out.Counts.Failed > 0:
		fail(out, tutti.BecauseResources, plural(out.Counts.Failed, "resource")+" failed")
	case r.Status == "failed":
		fail(out, tutti.BecauseCatalog, tr.message())
		out.Failures = failuresOf(tr.errors)
	case r.TransactionCompleted != nil && !*r.TransactionCompleted:
		fail(out, tutti.BecauseCatalog, "the catalog was not applied to its end: "+tr.message())
	case out.Counts.Failed > 0 || r.metric("failed") > 0 || r.metric("failed_to_restart") > 0:
		fail(out, tutti.BecauseMachinery, fmt.Sprintf("the report says %s, and has resources that failed", r.Status))
	case tr.postrun() != "": // Puppet exits with 1, but the only sign of this in its report is this message
		fail(out, tutti.BecauseMachinery, tr.postrun())
	default:
		out.Outcome = tutti.Outcome(r.Status)
	}
}

// postrun returns Puppet's message about a failed postrun_command, in the language of this Puppet. The method returns
// an empty string if the command has not failed.
func (tr trace) postrun() string {
	for _, l := range tr.errors {
		if l.Source == "Puppet" && strings.Contains(l.Message, "postrun_command") {
			return l.Message
		}
	}
	return ""
}

// withoutCatalog returns why a run failed before it applied anything. The method looks for the
// messages that Puppet logs in `Configurer#run_internal`.
func (tr trace) withoutCatalog() tutti.Reason {
	for _, l := range tr.errors {
		switch {
		case strings.HasPrefix(l.Message, "Could not run command from prerun_command"):
			return tutti.BecauseRefused
		case strings.HasPrefix(l.Message, "Failed to apply catalog: Could not retrieve local facts"):
			return tutti.BecauseFacts
		case strings.HasPrefix(l.Message, "Failed to apply catalog: "):
			return tutti.BecauseCatalog
		}
	}
	return tutti.BecauseCompile
}

// whole returns true if the run certainly applied all of a new catalog from the node's Puppet Server. If tags or
// schedules leave out a resource, Puppet counts this resource as skipped. Plugin sync or a request for the node
// shows that the run was a `puppet agent` (configurer.rb).
func (r foreignReport) whole(environment string) bool {
	_, synced := r.Metrics.Time.of("plugin_sync")
	_, asked := r.Metrics.Time.of("node_retrieval")
	return (synced || asked) && !r.Noop && r.CachedCatalogStatus == "not_used" && r.Environment == environment &&
		r.total() > 0 && r.metric("skipped") == 0 && !slices.ContainsFunc(r.Logs, func(l logLine) bool { return strings.HasPrefix(l.Message, bare) })
}

// bare is the beginning of a warning of the module (puppet_x/tutti/run.rb). The module warns if a run has a
// `tutti_value` but Tutti did not start the run. Such a run publishes nothing.
const bare = "tutti: this Puppet was not started by Tutti"
