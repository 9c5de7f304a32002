package app

import (
	"cmp"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/doctor/collect"
	"github.com/tutti-project/tutti/internal/durable"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/internal/report"
)

// The type `local` implements the commands `tutti local …`.
type local struct{}

// A command that follows a local run gives up if no agent has run for the time agentGone.
const agentGone = time.Minute

func (local) Status(dir string) (cli.LocalStatus, error) {
	member, err := machine.LoadMembership(machine.IdentityDir(dir))
	if err != nil {
		return cli.LocalStatus{}, err
	}
	out := cli.LocalStatus{Node: member.Node, Server: member.Bus, Agent: collect.Holder(filepath.Join(dir, "lock")) != 0}
	known, err := agent.ReadAlone(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return out, err
	}
	out.Reached = known.Reached
	out.Safety, out.NoSafety = known.Safety(member.Node)
	if known.Told != nil {
		out.After = known.Told.Safety
	}
	if a := known.Applied; a != nil {
		out.Environment, out.Code, out.As = a.Environment, a.Code, a.Run
	}
	out.HeldBy = agent.HeldBy(dir)
	out.Runs, err = localRuns(dir)
	for _, r := range out.Runs {
		if r.Result != nil && !r.Told {
			out.Waiting++
		}
	}
	told, _ := filepath.Glob(filepath.Join(dir, "foreign", "*.json"))
	out.Waiting += len(told)
	return out, err
}

// localRuns returns the runs that have a directory and have begun, latest first.
func localRuns(dir string) ([]cli.LocalRun, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "runs"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, tutti.Wrap(tutti.CodeRefused, err, "the runs of this node are readable by root only")
	}
	var out []cli.LocalRun
	for _, e := range entries {
		if r, err := localRun(dir, tutti.RunID(e.Name())); err == nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b cli.LocalRun) int { return cmp.Or(b.Began.Compare(a.Began), cmp.Compare(b.Run, a.Run)) })
	return out, nil
}

// localRun reads the directory of a run. localRun returns fs.ErrNotExist if there is no
// directory, or if the run never began.
func localRun(dir string, run tutti.RunID) (cli.LocalRun, error) {
	at := filepath.Join(dir, "runs", string(run))
	out := cli.LocalRun{Run: run}
	order, err := puppet.ReadOrder(at)
	if err != nil && !durable.Exists(filepath.Join(at, agent.LocalFile)) && !durable.Exists(filepath.Join(at, "result.json")) {
		return out, err
	}
	if err == nil {
		out.Job, out.Mode, out.Began = order.Tutti.Job, order.Mode, order.StartedAt
	}
	out.Local, out.Result, out.Told = agent.Ended(at)
	out.Refused = agent.Refused(at)
	if out.Began.IsZero() && out.Result != nil {
		out.Began = out.Result.StartedAt
	}
	return out, nil
}

func (local) Run(ctx context.Context, dir string, mode tutti.Mode, yield func(tutti.Live)) (cli.LocalRun, error) {
	if _, err := machine.LoadMembership(machine.IdentityDir(dir)); err != nil {
		return cli.LocalRun{}, err
	}
	run, err := agent.AskLocal(ctx, dir, mode)
	if err != nil {
		return cli.LocalRun{}, err
	}
	at := filepath.Join(dir, "runs", string(run))
	follow := puppet.Follow(at, run)
	defer follow.Close()
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	seen := now() // the last time at which an agent was seen running
	for {
		ended := durable.Exists(filepath.Join(at, "result.json"))
		if lives, err := follow.Next(); err == nil {
			for _, l := range lives {
				yield(l)
			}
		}
		if ended {
			return localRun(dir, run)
		}
		if collect.Holder(filepath.Join(dir, "lock")) != 0 {
			seen = now()
		} else if now().Sub(seen) > agentGone {
			return cli.LocalRun{}, tutti.Errorf(tutti.CodeUnavailable, "the agent has ended; Puppet may continue, and the next agent reads Puppet's result: tutti local log %s", run)
		}
		select {
		case <-ctx.Done():
			return cli.LocalRun{}, tutti.Wrap("", context.Cause(ctx), "run %s continues: tutti local log %s", run, run)
		case <-ticker.C:
		}
	}
}

func (local) Log(dir, run string, yield func(api.LogLine) error) (cli.LocalRun, error) {
	runs, err := localRuns(dir)
	if err != nil {
		return cli.LocalRun{}, err
	}
	fits := slices.DeleteFunc(runs, func(r cli.LocalRun) bool {
		return !strings.HasPrefix(string(r.Run), run) && !strings.HasSuffix(string(r.Run), run)
	})
	switch {
	case len(fits) == 0 && run == "":
		return cli.LocalRun{}, tutti.Errorf(tutti.CodeNotFound, "there is no run of this node in %s", dir)
	case len(fits) == 0:
		return cli.LocalRun{}, tutti.Errorf(tutti.CodeNotFound, "no run %q is kept on this node; see: tutti local status", run)
	case len(fits) > 1 && run != "":
		return cli.LocalRun{}, tutti.Errorf(tutti.CodeConflict, "%d runs begin or end with %q; give a longer part of the id", len(fits), run)
	}
	raw, err := os.ReadFile(filepath.Join(dir, "runs", string(fits[0].Run), "log.jsonl"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fits[0], err
	}
	return fits[0], report.Log(raw, yield)
}
