package explain

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/fold"
	"github.com/tutti-project/tutti/internal/plain"
	"github.com/tutti-project/tutti/internal/report"
)

// toRead limits the number and size of reports that one call reads. The answer says which reports the
// call has not read.
type toRead struct{ reports, bytes int }

// RunReport implements tutti.Reports.
func (rd *Reader) RunReport(ctx context.Context, run string) (api.RunReport, error) {
	out, err := rd.runOf(ctx, run)
	if err != nil {
		return out, err
	}
	out.Report, out.Missing, _, err = rd.report(ctx, out)
	return out, err
}

// runOf returns the data of the fold about a run.
func (rd *Reader) runOf(ctx context.Context, run string) (api.RunReport, error) {
	var out api.RunReport
	err := rd.look(ctx, func(v View) error {
		r, err := v.findRun(run)
		if err == nil {
			out = v.runReport(r)
		}
		return err
	})
	return out, err
}

// runReport returns a run with the data that the fold has.
func (v View) runReport(r *engine.Run) api.RunReport {
	out := api.RunReport{
		RunView: v.run(r), Attempt: r.Attempt, Environment: r.Environment, WantedAt: r.WantedAt, ClaimedAt: r.ClaimedAt,
		GateWhy: r.GateWhy, Lost: r.Lost, Retired: v.retired(r),
	}
	if r.Result != nil {
		result := *r.Result // the lists need no copy, because no code changes them
		out.Result = &result
	}
	return out
}

// The method `retired` reports whether the server may have deleted the report and the log of a run.
func (v View) retired(r *engine.Run) bool {
	switch said := v.Reports; {
	case said == nil:
		return true
	case r.Foreign != nil:
		return r.EndedSeq <= said.Foreign
	default:
		return r.EndedSeq <= said.Through
	}
}

// notThere returns the reason why a run's report or log is not stored. Either the server has deleted
// the content (CodeNotFound), or the disk has lost the content (CodeDamaged).
func notThere(what string, retired bool) error {
	if retired {
		return tutti.Errorf(tutti.CodeNotFound, "%s is not kept any more (--keep-reports, --keep-reports-for of the server)", what)
	}
	return tutti.Errorf(tutti.CodeDamaged, "%s was stored and is gone: the server's disk has lost it; see: tutti doctor, on the server", what)
}

// findRun finds a run by its id, by a part of its id, or by the name of its node. For a node, findRun returns the
// node's latest run. A name takes precedence over a part of an id, because the caller can give a longer part.
func (v View) findRun(text string) (*engine.Run, error) {
	const shortest = 4
	if r := v.Engine.Runs[tutti.RunID(text)]; r != nil {
		return r, nil
	}
	if n := v.Registry.Nodes[tutti.NodeName(text)]; n != nil {
		return v.latestRun(n)
	}
	if len(text) < shortest {
		return nil, tutti.Errorf(tutti.CodeInvalid, "run %q: give at least %d characters of its id, or the name of a node to see its latest run", text, shortest)
	}
	var found []*engine.Run
	for id, r := range v.Engine.Runs {
		if strings.HasPrefix(string(id), text) || strings.HasSuffix(string(id), text) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return nil, tutti.Errorf(tutti.CodeNotFound,
			"no run and no node %q: there was no such run, or its job is not kept any more (the server keeps the latest %d, --keep-jobs); see: tutti job show, tutti node list",
			text, v.KeepJobs)
	case 1:
		return found[0], nil
	}
	slices.SortFunc(found, func(a, b *engine.Run) int { return cmp.Compare(a.Run, b.Run) })
	var names []string
	for _, r := range found[:min(len(found), 5)] {
		names = append(names, fmt.Sprintf("%s (%s)", r.Run, r.Node))
	}
	return nil, tutti.Errorf(tutti.CodeConflict, "%d runs have an id like %q: %s; give more of the id, or the name of a node to see its latest run",
		len(found), text, strings.Join(names, ", "))
}

// latestRun returns the run that `tutti node list` shows for a node. If the node has not finished a run yet,
// latestRun returns the active run.
func (v View) latestRun(n *fold.Node) (*engine.Run, error) {
	shown := v.node(n)
	if r := v.Engine.Runs[cmp.Or(shown.LastRun, shown.Active)]; r != nil {
		return r, nil
	}
	return nil, tutti.Errorf(tutti.CodeNotFound, "the server has no run of node %q; run the node: tutti converge %s", string(n.Node), n.Node)
}

// The method `report` reads the report of a run, or returns why it is missing. The method also returns how many bytes
// it has read.
func (rd *Reader) report(ctx context.Context, of api.RunReport) (*api.Report, *api.Missing, int, error) {
	if of.Result == nil || of.Result.Report == "" {
		return nil, notSent(of), 0, nil
	}
	raw, err := rd.blobs.Get(ctx, of.Result.Report)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		why := api.ReportNotKept
		if !of.Retired {
			why = api.ReportLost
		}
		return nil, &api.Missing{Why: why, Text: notThere("its report", of.Retired).Error()}, 0, nil
	}
	if err != nil {
		return nil, nil, 0, tutti.Wrap("", err, "the report of run %s", of.Run)
	}
	out, err := report.Parse(raw)
	if err != nil {
		return nil, &api.Missing{Why: api.ReportDamaged, Text: plain.Words(err.Error())}, len(raw), nil
	}
	return &out, nil, len(raw), nil
}

// notSent returns the reason why a node has sent no report of a run.
func notSent(of api.RunReport) *api.Missing {
	m := &api.Missing{Why: api.ReportNotSent}
	switch {
	case of.Result == nil && of.Lost != "":
		m.Text = "the run is lost: " + of.Lost
	case of.Result == nil && !of.EndedAt.IsZero():
		m.Text = "the run has ended, and the node has sent no result"
	case of.Result == nil:
		m.Why, m.Text = api.ReportRunning, "the run has not ended: "+of.Phase
	case of.Result.Stopped:
		m.Text = "the gate stopped the run, so it applied nothing: " + of.GateWhy
	case of.Outcome == tutti.Failed || of.Outcome == tutti.Waiting:
		m.Text = fmt.Sprintf("Puppet wrote no report: it ended in phase %s", cmp.Or(of.Result.Phase, "none"))
	default:
		m.Text = cmp.Or(of.Result.Message, "Puppet wrote none")
	}
	return m
}

// RunLog implements tutti.Reports.
func (rd *Reader) RunLog(ctx context.Context, run tutti.RunID, yield func(api.LogLine) error) error {
	of, err := rd.runOf(ctx, string(run))
	if err != nil {
		return err
	}
	read, digest := report.Log, tutti.Digest("")
	if of.Result != nil {
		if digest = of.Result.Log; digest == "" { // for example if the log was too large for a blob
			read, digest = report.Logged, of.Result.Report
		}
	}
	if digest == "" {
		return tutti.Errorf(tutti.CodeNotFound, "there is no log of run %s: %s", run, notSent(of).Text)
	}
	raw, err := rd.blobs.Get(ctx, digest)
	if tutti.CodeOf(err) == tutti.CodeNotFound {
		return notThere("the log of run "+string(run), of.Retired)
	}
	if err != nil {
		return tutti.Wrap("", err, "the log of run %s", run)
	}
	return read(raw, func(l api.LogLine) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		return yield(l)
	})
}

// JobChanges implements tutti.Reports.
func (rd *Reader) JobChanges(ctx context.Context, job tutti.JobID) (api.JobChanges, error) {
	var out api.JobChanges
	var runs []api.RunReport
	err := rd.look(ctx, func(v View) error {
		j, err := v.Job(job, v.KeepJobs)
		if err != nil {
			return err
		}
		out.Job = j.ID
		for _, st := range j.Steps {
			for _, n := range st.Nodes {
				for _, r := range n.Runs {
					if r.Result == nil || !r.Result.Stopped {
						runs = append(runs, v.runReport(r))
					}
				}
			}
		}
		return nil
	})
	if err != nil {
		return out, err
	}
	err = rd.fillChanges(ctx, runs, &out)
	return out, err
}

// fillChanges reads the reports of runs. The method begins with the reports of failed runs. The method skips runs
// without changes.
func (rd *Reader) fillChanges(ctx context.Context, runs []api.RunReport, out *api.JobChanges) error {
	rank := func(r api.RunReport) int {
		if r.Outcome.Good() {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(runs, func(a, b api.RunReport) int { return rank(a) - rank(b) })
	var same report.Same
	read := 0
	for _, r := range runs {
		switch {
		case r.Outcome == tutti.Unchanged && !r.Result.NoopPending:
			continue
		case out.Read == rd.most.reports || read > rd.most.bytes:
			unread(out, fmt.Sprintf("one call reads at most %d reports, and %d MiB of them; see: tutti run show", rd.most.reports, rd.most.bytes>>20), r.Node)
			continue
		}
		rep, missing, n, err := rd.report(ctx, r)
		if err != nil {
			return err
		}
		read += n
		if rep == nil {
			unread(out, missing.Text, r.Node)
			continue
		}
		out.Read++
		same.Add(r.Node, *rep)
	}
	out.Changes, out.LeftOut = same.Changes()
	return nil
}

// The function `unread` records a run whose report was not read.
func unread(out *api.JobChanges, why string, node tutti.NodeName) {
	const most = 20 // the largest number of reasons, and of nodes for each reason
	find := func(why string) int {
		return slices.IndexFunc(out.Unread, func(u api.Unread) bool { return u.Why == why })
	}
	i := find(why)
	if i < 0 && len(out.Unread) >= most {
		why = "for other reasons"
		i = find(why)
	}
	if i < 0 {
		i = len(out.Unread)
		out.Unread = append(out.Unread, api.Unread{Why: why})
	}
	u := &out.Unread[i]
	u.Runs++
	if len(u.Nodes) < most && !slices.Contains(u.Nodes, node) {
		u.Nodes = append(u.Nodes, node)
	}
}
