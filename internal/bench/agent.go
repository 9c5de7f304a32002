package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// agentRounds is how often each of the two ways to run Puppet is measured. Runs of the two ways
// alternate.
const agentRounds = 15

// agentFleet has one node, which runs with the Puppet Server.
const agentFleet = "fleet: bench\nmode: agent\ngroups: {web: {nodes: [web-01]}}\nplans: {run: {steps: [{run: web}]}}\n"

// agentRun shows where the time of one run through Tutti went.
type agentRun struct {
	whole   time.Duration // whole is the time of the command, from its exec to its end.
	before  time.Duration // before is the time from exec until the agent starts Puppet.
	process time.Duration // process is the time of Puppet's process, as the agent measured it.
	after   time.Duration // after is the time from Puppet's end to the verdict.
	exit    time.Duration // exit is the time from the verdict to the end of the command.
}

// measureAgent measures `puppet agent -t` by hand on a lab host, and the same run through `tutti
// run`. Runs of the two ways alternate. Both ways use a Puppet Server and an empty catalog.
func measureAgent(ctx context.Context, o options) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	spec, err := lab.ReadSpec("e2e/puppetserver.yaml")
	if err != nil {
		return nil, err
	}
	spec.Name, spec.Hosts = "bench-agent", spec.Hosts[:3]
	for i := range spec.Hosts {
		spec.Hosts[i].Prepare = "" // the measured hosts have the settings of their packages
	}
	machine := lab.Machine{Log: os.Stderr}
	running, err := machine.Up(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, machine.Down(context.WithoutCancel(ctx), spec.Name)) }()
	f, err := startAgentSite(ctx, running, o.binary, dir)
	if err != nil {
		return nil, err
	}
	var byHand, through []agentRun
	for range agentRounds {
		hand, err := puppetByHand(ctx, f.Nodes[0])
		if err != nil {
			return nil, err
		}
		run, err := puppetThrough(ctx, f, o.binary)
		if err != nil {
			return nil, err
		}
		byHand, through = append(byHand, agentRun{whole: hand}), append(through, run)
	}
	return agentFigures(byHand, through), nil
}

// startAgentSite starts the Puppet Server and a fleet with the node web-01. When it returns, the
// node has its certificate and plugins.
func startAgentSite(ctx context.Context, running *lab.Running, binary, dir string) (*stage.LabFleet, error) {
	server, err := running.Host("puppet")
	if err != nil {
		return nil, err
	}
	node, err := running.Host("web-01")
	if err != nil {
		return nil, err
	}
	const site = "printf '[main]\\ncertname = %s\\nserver = puppet\\n[server]\\nautosign = true\\n' \"$(hostname)\" > /etc/puppet/puppet.conf; "
	if _, err := stage.Output(ctx, server, nil, "sh", "-euc", site+"mkdir -p /etc/puppet/code/environments/production; systemctl start puppetserver"); err != nil {
		return nil, err
	}
	members := *running
	members.Hosts = slices.DeleteFunc(slices.Clone(running.Hosts), func(h *lab.Host) bool { return h == server })
	f, err := app.StartLabFleet(ctx, &members, "tutti", binary, dir)
	if err != nil {
		return nil, err
	}
	if _, err := stage.Output(ctx, node, nil, "sh", "-euc", site+"puppet agent --onetime --no-daemonize; puppet agent --onetime --no-daemonize"); err != nil {
		return nil, err
	}
	_, err = f.Client.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(agentFleet)})
	return f, err
}

// puppetByHand measures a `puppet agent -t` that changes nothing.
func puppetByHand(ctx context.Context, h *lab.Host) (time.Duration, error) {
	cmd := h.Command(ctx, "puppet", "agent", "-t")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil { // with -t, exit code 2 means that something changed, which must not happen here
		return 0, fmt.Errorf("puppet agent -t: %w\n%s", err, said.Bytes())
	}
	return took, nil
}

// puppetThrough measures a `puppet agent` run through the command `tutti run`.
func puppetThrough(ctx context.Context, f *stage.LabFleet, binary string) (agentRun, error) {
	cmd := exec.CommandContext(ctx, binary, "--operator", f.Conn.OperatorDir, "run", "run", "--no-push")
	began := time.Now()
	out, err := cmd.CombinedOutput()
	ended := time.Now()
	if err != nil {
		return agentRun{}, fmt.Errorf("tutti run: %w\n%s", err, out)
	}
	state, verdict := engine.NewState(), time.Time{}
	err = f.Client.WatchJob(ctx, api.WatchJob{}, func(w api.Watched) error {
		if w.Event != nil {
			state.Apply(*w.Event)
			verdict = w.Event.At
		}
		return nil
	})
	if err != nil {
		return agentRun{}, err
	}
	j := state.Jobs[state.Order[0]]
	r := j.Steps[0].Nodes[0].Last()
	if r.Result == nil || r.Result.Outcome != tutti.Unchanged {
		return agentRun{}, fmt.Errorf("the run ended as %+v", r.Result)
	}
	return agentRun{
		whole: ended.Sub(began), before: r.Result.StartedAt.Sub(began), process: r.Result.Duration(),
		after: verdict.Sub(r.Result.EndedAt), exit: ended.Sub(verdict),
	}, nil
}

func agentFigures(byHand, through []agentRun) []figure {
	median := func(of func(i int) time.Duration) float64 {
		var all []time.Duration
		for i := range through {
			all = append(all, of(i))
		}
		return quantile(all, 0.5)
	}
	ratios := make([]float64, len(through))
	for i := range through {
		ratios[i] = through[i].whole.Seconds() / byHand[i].whole.Seconds()
	}
	slices.Sort(ratios)
	return []figure{
		{"puppet agent -t by hand, median", median(func(i int) time.Duration { return byHand[i].whole }), "ms", 0},
		{"tutti run of the same, median", median(func(i int) time.Duration { return through[i].whole }), "ms", 0},
		{"tutti run less by hand, in turn, median", median(func(i int) time.Duration { return through[i].whole - byHand[i].whole }), "ms", 100},
		{"tutti run over by hand, in turn, median", ratios[len(ratios)/2], "ratio", 0},
		{"tutti run: before Puppet starts, median", median(func(i int) time.Duration { return through[i].before }), "ms", 0},
		{"tutti run: Puppet's process, median", median(func(i int) time.Duration { return through[i].process }), "ms", 0},
		{"tutti run: that less by hand, in turn, median", median(func(i int) time.Duration { return through[i].process - byHand[i].whole }), "ms", 0},
		{"tutti run: from its end to the verdict, median", median(func(i int) time.Duration { return through[i].after }), "ms", 0},
		{"tutti run: from the verdict to exit, median", median(func(i int) time.Duration { return through[i].exit }), "ms", 0},
	}
}
