package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// warmRounds is how often a warm run and a cold run are measured. Warm and cold runs alternate.
const warmRounds = 7

// warmPlans are two plans that run one node each. The run of the first plan is warm, and the run of
// the second plan is cold.
const warmPlans = "  warm: {steps: [{run: storage-01, facts: ahead}]}\n  cold: {steps: [{run: storage-02}]}\n"

// measureWarm compares warm runs, which find Puppet loaded, with cold runs, which load Puppet. Warm
// and cold runs alternate. It measures three times: two storage nodes of the converged Swift
// example, a manifest with one notify, and the storage nodes again without facter.conf. The file
// facter.conf causes the most expensive fact on the hosts of a lab. Other nodes have a facter.conf
// only if somebody wrote the file.
func measureWarm(ctx context.Context, o options) (figures []figure, err error) {
	err = onSwift(ctx, "bench-warm", o, func(f *stage.LabFleet, dir string) error {
		warm, err := f.Lab.Host("storage-01")
		if err != nil {
			return err
		}
		cold, err := f.Lab.Host("storage-02")
		if err != nil {
			return err
		}
		if _, err := deploy(ctx, f); err != nil {
			return err
		}
		if err := f.RunCold(ctx, cold); err != nil {
			return err
		}
		swift, err := warmAndCold(ctx, f, "Swift's storage node", 1./3, "examples/swift/tutti.yaml")
		if err != nil {
			return err
		}
		one := filepath.Join(dir, "notify")
		if err := writeNotify(one, "examples/swift/tutti.yaml"); err != nil {
			return err
		}
		if err := f.Push(ctx, one); err != nil {
			return err
		}
		notify, err := warmAndCold(ctx, f, "notify", 0.1, filepath.Join(one, "tutti.yaml"))
		if err != nil {
			return err
		}
		memory, err := parentMemory(ctx, warm)
		if err != nil {
			return err
		}
		for _, h := range []*lab.Host{warm, cold} {
			if _, err := stage.Output(ctx, h, nil, "rm", "/etc/facter/facter.conf"); err != nil {
				return err
			}
		}
		if err := f.Push(ctx, "examples/swift"); err != nil {
			return err
		}
		stock, err := warmAndCold(ctx, f, "Swift's storage node without facter.conf", 1./3, "examples/swift/tutti.yaml")
		figures = slices.Concat(swift, notify, memory, stock)
		return err
	})
	return figures, err
}

// writeNotify writes a fleet with one resource.
func writeNotify(dir, fleet string) error {
	if err := os.MkdirAll(filepath.Join(dir, "code/manifests"), 0o755); err != nil {
		return err
	}
	source, err := os.ReadFile(fleet)
	if err != nil {
		return err
	}
	return errors.Join(
		os.WriteFile(filepath.Join(dir, "tutti.yaml"), source, 0o644),
		os.WriteFile(filepath.Join(dir, "code/manifests/site.pp"), []byte("notify { 'a': }\n"), 0o644),
	)
}

// warmAndCold returns the figures of one manifest. The figures are the times of Puppet's processes,
// measured by the agents. The first round does not count, because the nodes fetch the code during
// this round.
func warmAndCold(ctx context.Context, f *stage.LabFleet, what string, goal float64, fleet string) ([]figure, error) {
	source, err := os.ReadFile(fleet)
	if err != nil {
		return nil, err
	}
	if _, err := f.Client.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: append(source, warmPlans...)}); err != nil {
		return nil, err
	}
	var warm, cold []time.Duration
	var ratios []float64
	for i := range warmRounds + 1 {
		w, err := planned(ctx, f, "warm")
		if err != nil {
			return nil, err
		}
		c, err := planned(ctx, f, "cold")
		if err != nil {
			return nil, err
		}
		switch {
		case i == 0:
			continue
		case !w.Warm || c.Warm:
			return nil, fmt.Errorf("%s: the warm run was warm: %v (%s), the cold one: %v", what, w.Warm, w.Cold, c.Warm)
		case w.FactsAge == 0:
			return nil, fmt.Errorf("%s: the warm run has collected its own facts", what)
		}
		warm, cold = append(warm, w.Duration()), append(cold, c.Duration())
		ratios = append(ratios, w.Duration().Seconds()/c.Duration().Seconds())
	}
	slices.Sort(ratios)
	return []figure{
		{what + ": cold, median", quantile(cold, 0.5), "ms", 0},
		{what + ": warm, median", quantile(warm, 0.5), "ms", 0},
		{what + ": warm over cold, in turn, median", ratios[len(ratios)/2], "ratio", goal},
	}, nil
}

// The function `planned` executes a plan and returns the result of its only run.
func planned(ctx context.Context, f *stage.LabFleet, plan tutti.PlanName) (tutti.Result, error) {
	job, err := finished(ctx, f, plan)
	if err != nil {
		return tutti.Result{}, err
	}
	r := job.Steps[0].Nodes[0].Last()
	if r == nil || r.Result == nil || !r.Result.Outcome.Good() {
		return tutti.Result{}, fmt.Errorf("job %s: %s", job.ID, job.Message)
	}
	return *r.Result, nil
}

// parentMemory returns the memory of the warm parent: all of it, and its proportional share of
// shared memory.
func parentMemory(ctx context.Context, h *lab.Host) ([]figure, error) {
	out, err := stage.Output(ctx, h, nil, "sh", "-euc", "cat /proc/$(pgrep -x tutti-warm)/smaps_rollup")
	if err != nil {
		return nil, err
	}
	var figures []figure
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) == 3 && (fields[0] == "Rss:" || fields[0] == "Pss:") {
			kib, err := strconv.ParseFloat(fields[1], 64)
			if err != nil {
				return nil, err
			}
			figures = append(figures, figure{"warm parent, " + strings.TrimSuffix(fields[0], ":"), kib / 1024, "MiB", 0})
		}
	}
	return figures, nil
}
