package stage

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/chaos"
	"github.com/tutti-project/tutti/internal/lab"
)

// The type `remembered` contains the jobs and runs from before the chaos.
type remembered struct {
	jobs map[tutti.JobID]bool
	runs map[tutti.RunID]bool
}

func (c Chaos) remember(ctx context.Context) (remembered, error) {
	r := remembered{map[tutti.JobID]bool{}, map[tutti.RunID]bool{}}
	jobs, err := c.Fleet.Client.ListJobs(ctx)
	if err != nil {
		return r, err
	}
	for _, j := range jobs {
		r.jobs[j.Job] = true
	}
	started, err := c.started(ctx, r)
	for _, s := range started {
		r.runs[s.Run] = true
	}
	return r, err
}

// The method `last` waits until every node is back and every job has ended. After that, the method
// executes the plan once more.
func (c Chaos) last(ctx context.Context) (api.JobView, error) {
	if err := c.settle(ctx); err != nil {
		return api.JobView{}, err
	}
	deadline, _ := ctx.Deadline()
	job, err := c.execute(ctx, deadline)
	if err != nil {
		return api.JobView{}, err
	}
	jobs, err := c.Fleet.Client.ListJobs(ctx)
	if err != nil {
		return api.JobView{}, err
	}
	i := slices.IndexFunc(jobs, func(j api.JobView) bool { return j.Job == job })
	if i < 0 {
		return api.JobView{}, fmt.Errorf("job %s is not in the list", job)
	}
	return jobs[i], c.settle(ctx)
}

// The method `settle` waits until every node is connected and has sent its results, and
// every job has its verdict. After a third of settleDeadline, the method returns without an
// error.
func (c Chaos) settle(ctx context.Context) error {
	deadline := time.Now().Add(settleDeadline / 3)
	for {
		settled, err := c.settled(ctx)
		if err == nil && settled || ctx.Err() != nil || time.Now().After(deadline) {
			return err
		}
		sleep(ctx, askAgainEvery)
	}
}

func (c Chaos) settled(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerDeadline)
	defer cancel()
	nodes, err := c.Fleet.Client.ListNodes(ctx)
	if err != nil {
		return false, err
	}
	jobs, err := c.Fleet.Client.ListJobs(ctx)
	away := slices.ContainsFunc(nodes, func(n api.NodeView) bool { return !n.Connected || n.Active != "" })
	open := slices.ContainsFunc(jobs, func(j api.JobView) bool { return j.Verdict == "" })
	if err != nil || away || open {
		return false, err
	}
	// A run that was given up may still be going on. The result of the run has not
	// arrived yet.
	for _, h := range c.Fleet.Nodes {
		out, err := Output(ctx, h, nil, "sh", "-c", "cd "+hostRuns+` 2> /dev/null || exit 0; for r in *; do [ ! -d "$r" ] || [ -e "$r/result.json" ] || echo "$r"; done`)
		if err != nil || len(bytes.TrimSpace(out)) > 0 {
			return false, err
		}
	}
	return true, nil
}

// The method `history` collects what the server and the nodes have stored since the chaos began.
func (c Chaos) history(ctx context.Context, before remembered) (chaos.History, error) {
	h := chaos.History{Server: c.Fleet.Server.Name}
	var err error
	if h.Nodes, err = c.Fleet.Client.ListNodes(ctx); err != nil {
		return h, err
	}
	all, err := c.Fleet.Client.ListJobs(ctx)
	if err != nil {
		return h, err
	}
	for _, j := range all {
		if before.jobs[j.Job] {
			continue
		}
		h.Jobs = append(h.Jobs, j)
		wanted, err := c.wanted(ctx, j.Job)
		if err != nil {
			return h, err
		}
		h.Wanted = append(h.Wanted, wanted...)
	}
	h.Started, err = c.started(ctx, before)
	return h, err
}

// The method `wanted` returns the runs that the log has for a job.
func (c Chaos) wanted(ctx context.Context, job tutti.JobID) ([]chaos.Wanted, error) {
	var order []tutti.RunID
	runs := map[tutti.RunID]*chaos.Wanted{}
	of := func(run tutti.RunID) *chaos.Wanted {
		if runs[run] == nil {
			runs[run] = &chaos.Wanted{Run: run, Job: job}
			order = append(order, run)
		}
		return runs[run]
	}
	err := c.Fleet.Client.WatchJob(ctx, api.WatchJob{Job: job}, func(w api.Watched) error {
		if w.Event == nil {
			return nil
		}
		switch b := w.Event.Body.(type) {
		case *tutti.RunWanted:
			of(b.Order.Run).Node = string(b.Order.Node)
		case *tutti.RunClaimed:
			of(b.Run).Claimed = true
		case *tutti.RunFinished:
			of(b.Result.Run).Result = true
		case *tutti.RunLost:
			of(b.Run).LostAt = w.Event.At
		}
		return nil
	})
	var out []chaos.Wanted
	for _, run := range order {
		out = append(out, *runs[run])
	}
	return out, err
}

const hostRuns = "/var/lib/tutti/agent/runs"

// The method `started` returns the runs that the nodes have on their disks.
func (c Chaos) started(ctx context.Context, before remembered) ([]chaos.Started, error) {
	var all []chaos.Started
	var errs []error
	for _, h := range c.Fleet.Nodes {
		runs, err := startedOn(ctx, h)
		for _, s := range runs {
			if !before.runs[s.Run] {
				all = append(all, s)
			}
		}
		errs = append(errs, err)
	}
	return all, errors.Join(errs...)
}

// startedOn reads the directories of a node's runs.
func startedOn(ctx context.Context, h *lab.Host) ([]chaos.Started, error) {
	const script = `cd ` + hostRuns + ` 2> /dev/null || exit 0
for r in *; do
  [ -d "$r" ] || continue
  echo "run $r $([ -e "$r/result.json" ] && echo result)"
  cat "$r/phase.jsonl" 2> /dev/null || true
done`
	out, err := Output(ctx, h, nil, "sh", "-c", script)
	var runs []chaos.Started
	for line := range strings.Lines(string(out)) {
		if head, ok := strings.CutPrefix(line, "run "); ok {
			id, result, _ := strings.Cut(strings.TrimSpace(head), " ")
			runs = append(runs, chaos.Started{Run: tutti.RunID(id), Node: h.Name, Result: result != ""})
			continue
		}
		var p struct {
			At    time.Time `json:"t"`
			Phase string    `json:"phase"`
		}
		if json.Unmarshal([]byte(line), &p) != nil || len(runs) == 0 {
			continue // the cut-off last line of a killed launcher
		}
		s := &runs[len(runs)-1]
		switch {
		case p.Phase == "settings":
			s.Starts++
		case p.Phase == "facts" && s.From.IsZero(): // the run has the lock
			s.From = p.At
		}
		s.To = p.At
	}
	return runs, err
}
