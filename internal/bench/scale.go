package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/engine"
)

const (
	smallFleet = 100 // number of nodes in a small fleet, with which the large fleet is compared
	exportType = "Bench_member"
	stages     = 3
	settle     = 5 * time.Second // wait before memory is measured
	idleTime   = 30 * time.Second
	beforeKill = 3 * time.Second // beforeKill is the time between the start of the job and the kill of the server.
)

// measureScale measures one server with many nodes. The nodes are agents in this process with a
// fake Puppet that sleeps. The server is a separate process on the same cores. If possible, the
// agents' directories are in memory, because real nodes would not all write to one disk.
func measureScale(ctx context.Context, o options) ([]figure, error) {
	return withFleet(ctx, o, (*scaleMeasure).run)
}

// The constant `returns` is how often measureReturn kills the server.
const returns = 3

// measureReturn kills the server and starts it again, and measures the time until all idle nodes
// have come back.
func measureReturn(ctx context.Context, o options) ([]figure, error) {
	return withFleet(ctx, o, func(m *scaleMeasure, ctx context.Context) error {
		if err := m.server.start(ctx); err != nil {
			return err
		}
		if err := m.fleet.grow(ctx, m.server, 0, m.nodes); err != nil {
			return err
		}
		var times []time.Duration
		for range returns {
			began := time.Now()
			if err := m.bounce(ctx, m.nodes); err != nil {
				return err
			}
			times = append(times, time.Since(began))
		}
		m.add(fmt.Sprintf("kill -9 to all %d idle nodes back, best", m.nodes), quantile(times, 0)/1000, "s", 0)
		m.add(fmt.Sprintf("kill -9 to all %d idle nodes back, median", m.nodes), quantile(times, 0.5)/1000, "s", 10)
		return nil
	})
}

// withFleet measures one server with agents in this process.
func withFleet(ctx context.Context, o options, measure func(*scaleMeasure, context.Context) error) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	nodes, err := os.MkdirTemp("/dev/shm", "tutti-bench-")
	if err != nil {
		nodes = dir
	}
	defer func() { err = errors.Join(err, os.RemoveAll(nodes)) }()
	s, err := newServerProcess(o, dir)
	if err != nil {
		return nil, err
	}
	defer s.end()
	root, err := simulatedRoot(nodes)
	if err != nil {
		return nil, err
	}
	m := &scaleMeasure{options: o, server: s, fleet: &simulatedFleet{dir: nodes, root: root, behind: o.behind}, dir: dir}
	ctx, cancel := context.WithCancel(ctx)
	defer m.fleet.parts.Wait()
	defer cancel()
	err = measure(m, ctx)
	return m.figures, err
}

type scaleMeasure struct {
	options
	server  *serverProcess
	fleet   *simulatedFleet
	dir     string
	figures []figure
}

func (m *scaleMeasure) add(name string, value float64, unit string, goal float64) {
	m.figures = append(m.figures, figure{name, value, unit, goal})
}

func (m *scaleMeasure) run(ctx context.Context) error {
	if err := m.server.start(ctx); err != nil {
		return err
	}
	if err := m.prepare(ctx); err != nil {
		return err
	}
	alone, err := m.memory(ctx, 0)
	if err != nil {
		return err
	}
	few := min(smallFleet, m.nodes)
	for _, to := range []struct {
		group       string
		from, nodes int
	}{{"few", 0, few}, {"all", few, m.nodes}} {
		if err := m.fleet.grow(ctx, m.server, to.from, to.nodes); err != nil {
			return err
		}
		now, err := m.memory(ctx, to.nodes)
		if err != nil {
			return err
		}
		m.add("its growth for each node", (now-alone)/float64(to.nodes), "KiB", 0)
		if err := m.stages(ctx, to.group, to.nodes); err != nil {
			return err
		}
	}
	if err := m.restart(ctx); err != nil {
		return err
	}
	return m.idle(ctx)
}

// The method `prepare` pushes code, data and plans to the server.
func (m *scaleMeasure) prepare(ctx context.Context) error {
	code := filepath.Join(m.dir, "code")
	if err := os.MkdirAll(filepath.Join(code, "manifests"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(code, "manifests", "site.pp"), []byte("# nothing\n"), 0o644); err != nil {
		return err
	}
	if _, err := app.Commands().Push(ctx, m.server, cli.Connection{OperatorDir: m.server.operator}, cli.PushCode{Dir: code, Environment: "production"}); err != nil {
		return err
	}
	for i := range hieraThere {
		if err := m.server.SetValue(ctx, "shared/hiera/"+hieraKey(i), []byte(`"a setting of the whole fleet"`)); err != nil {
			return err
		}
	}
	if err := m.server.SetValue(ctx, "shared/release", []byte(`"2026.2"`)); err != nil {
		return err
	}
	_, err := m.server.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(fleetFile(m.nodes))})
	return err
}

func fleetFile(nodes int) string {
	var b strings.Builder
	b.WriteString("fleet: bench\nenvironment: {name: production, path: ./code}\ngroups:\n")
	for name, count := range map[string]int{"few": min(smallFleet, nodes), "all": nodes} {
		fmt.Fprintf(&b, "  %s:\n    nodes:\n", name)
		for i := range count {
			fmt.Fprintf(&b, "      - %s\n", nodeName(i))
		}
	}
	fmt.Fprintf(&b, "grants:\n  - {to: all, exports: [{type: %s, defined: true}]}\nplans:\n", exportType)
	for _, group := range []string{"few", "all"} {
		fmt.Fprintf(&b, "  %s-warm:\n    steps: [{run: %s}]\n  %s-stages:\n    steps:\n", group, group, group)
		for i := range stages {
			fmt.Fprintf(&b, "      - {name: stage%d, run: %s}\n", i, group)
		}
	}
	fmt.Fprintf(&b, "  all-long:\n    steps: [{name: %s, run: all}]\n", longStep)
	return b.String()
}

// The method `memory` returns the resident memory, in KiB, of a new server process with the given
// number of idle connected nodes.
func (m *scaleMeasure) memory(ctx context.Context, nodes int) (float64, error) {
	if err := m.bounce(ctx, nodes); err != nil {
		return 0, err
	}
	if err := sleep(ctx, settle); err != nil {
		return 0, err
	}
	resident, err := m.server.resident()
	m.add(fmt.Sprintf("server with %d nodes, resident", nodes), resident/1024, "MiB", 0)
	return resident, err
}

// The method `bounce` kills the server and returns after a new server process has answered all
// nodes.
func (m *scaleMeasure) bounce(ctx context.Context, nodes int) error {
	m.server.kill()
	m.fleet.heard.Store(0)
	if err := m.server.start(ctx); err != nil {
		return err
	}
	return m.fleet.all(ctx, nodes)
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// The method `job` executes a plan and returns its numbers.
func (m *scaleMeasure) job(ctx context.Context, plan string) (engine.Summary, error) {
	job, err := m.server.StartJob(ctx, api.StartJob{Plan: tutti.PlanName(plan), Mode: tutti.ModeApply})
	if err != nil {
		return engine.Summary{}, err
	}
	sum, _, err := m.outcome(ctx, job)
	return sum, err
}

// The method `outcome` waits for the verdict of a job and then reads all of its events. The method
// does not watch the job, because watching takes CPU time of the server.
func (m *scaleMeasure) outcome(ctx context.Context, job tutti.JobID) (engine.Summary, int, error) {
	var out engine.Summary
	for {
		jobs, err := m.server.ListJobs(ctx)
		if err != nil {
			return out, 0, err
		}
		if jobs[0].Job == job && jobs[0].Verdict != "" {
			break
		}
		if err := sleep(ctx, 500*time.Millisecond); err != nil {
			return out, 0, err
		}
	}
	state, lost := engine.NewState(), 0
	err := m.server.WatchJob(ctx, api.WatchJob{Job: job}, func(w api.Watched) error {
		if w.Event != nil {
			state.Apply(*w.Event)
			if _, is := w.Event.Body.(*tutti.RunLost); is {
				lost++
			}
		}
		return nil
	})
	if err != nil {
		return out, lost, err
	}
	out = state.Jobs[job].Summary(time.Now())
	if out.Outcome != tutti.VerdictSucceeded {
		err = fmt.Errorf("job %s %s: %s; %d runs, %d failed, %d lost", job, out.Outcome, state.Jobs[job].Message, out.Runs, out.Failed, lost)
	}
	return out, lost, err
}

// The method `stages` executes the plan of three stages in a group with the given number of nodes.
func (m *scaleMeasure) stages(ctx context.Context, group string, nodes int) error {
	if _, err := m.job(ctx, group+"-warm"); err != nil { // the nodes fetch the code in this job, which is not measured
		return err
	}
	used, err := m.usage()
	if err != nil {
		return err
	}
	stop, err := m.startProfiles(ctx, group)
	if err != nil {
		return err
	}
	sum, err := m.job(ctx, group+"-stages")
	server, agents, usageErr := used()
	if err = errors.Join(err, usageErr, stop()); err != nil {
		return err
	}
	what, runs := fmt.Sprintf("%d nodes, %d stages: ", nodes, stages), float64(stages*nodes)
	m.add(what+"wall over critical path", sum.Wall.Seconds()/sum.CriticalPath.Seconds(), "ratio", 1.3)
	m.add(what+"wall", sum.Wall.Seconds(), "s", 0)
	m.add(what+"critical path", sum.CriticalPath.Seconds(), "s", 0)
	m.add(what+"server CPU per run", float64(server.Milliseconds())/runs, "ms", 0)
	m.add(what+"agents CPU per run", float64(agents.Milliseconds())/runs, "ms", 0)
	return nil
}

// profileTime is roughly how long the three stages take, in seconds.
const profileTime = 30

// startProfiles takes CPU profiles of both processes if the options ask for profiles.
func (m *scaleMeasure) startProfiles(ctx context.Context, name string) (stop func() error, err error) {
	if m.profile == "" {
		return func() error { return nil }, nil
	}
	own, err := os.Create(filepath.Join(m.profile, name+"-agents.cpu"))
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(own); err != nil {
		return nil, err
	}
	var group errgroup.Group
	group.Go(func() error {
		return saveProfile(ctx, fmt.Sprintf("profile?seconds=%d", profileTime), filepath.Join(m.profile, name+"-server.cpu"))
	})
	return func() error {
		pprof.StopCPUProfile()
		return errors.Join(own.Close(), group.Wait())
	}, nil
}

// The method `restart` kills the server while all nodes run, and starts it again. The method
// measures the time until the last node is back.
func (m *scaleMeasure) restart(ctx context.Context) error {
	job, err := m.server.StartJob(ctx, api.StartJob{Plan: "all-long", Mode: tutti.ModeApply})
	if err != nil {
		return err
	}
	if err := sleep(ctx, beforeKill); err != nil {
		return err
	}
	began := time.Now()
	if err := m.bounce(ctx, m.nodes); err != nil {
		return err
	}
	m.add(fmt.Sprintf("kill -9 to all %d nodes back", m.nodes), time.Since(began).Seconds(), "s", 10)
	_, lost, err := m.outcome(ctx, job)
	m.figures = append(m.figures, figure{"runs judged lost over it", float64(lost), "runs", 0.5})
	return err
}

// The method `idle` measures the CPU time while there are only heartbeats, and the memory that the
// jobs have left in use.
func (m *scaleMeasure) idle(ctx context.Context) error {
	if err := sleep(ctx, settle); err != nil {
		return err
	}
	used, err := m.usage()
	if err != nil {
		return err
	}
	if err := sleep(ctx, idleTime); err != nil {
		return err
	}
	server, agents, err := used()
	if err != nil {
		return err
	}
	if m.profile != "" {
		if err := saveProfile(ctx, "heap", filepath.Join(m.profile, "server.heap")); err != nil {
			return err
		}
	}
	resident, err := m.server.resident()
	m.add(fmt.Sprintf("server after %d runs, resident", (stages+1)*(m.nodes+min(m.nodes, smallFleet))+m.nodes), resident/1024, "MiB", 0)
	m.add("server CPU when idle, of one core", 100*server.Seconds()/idleTime.Seconds(), "%", 0)
	m.add("all agents CPU when idle, of one core", 100*agents.Seconds()/idleTime.Seconds(), "%", 0)
	return err
}

// The method `usage` records the CPU time that server and agents have used so far. The returned
// function returns how much more CPU time both have used since then.
func (m *scaleMeasure) usage() (since func() (server, agents time.Duration, err error), err error) {
	pids := [2]int{m.server.cmd.Process.Pid, os.Getpid()}
	now := func() (used [2]time.Duration, err error) {
		for i, pid := range pids {
			if used[i], err = cpuOf(pid); err != nil {
				return used, err
			}
		}
		return used, nil
	}
	before, err := now()
	return func() (server, agents time.Duration, err error) {
		after, err := now()
		return after[0] - before[0], after[1] - before[1], err
	}, err
}
