package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
)

// measureSwift boots the example's four hosts, then deploys Swift on them, and
// measures the orchestration beside Puppet's own time, and memory.
func measureSwift(ctx context.Context, o options) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	spec, err := lab.ReadSpec("examples/swift/lab.yaml")
	if err != nil {
		return nil, err
	}
	machine := lab.Machine{Log: os.Stderr}
	if _, err := machine.Base(ctx, spec.Definition); err != nil {
		return nil, err // built before the clock starts
	}
	boot, err := measureBoot(ctx, machine, spec)
	if err != nil {
		return nil, err
	}
	spec.Name = "bench"
	running, err := machine.Up(ctx, spec)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, machine.Down(context.WithoutCancel(ctx), spec.Name)) }()
	f, err := app.StartLabFleet(ctx, running, "tutti", o.binary, dir)
	if err != nil {
		return nil, err
	}
	if err := f.Push(ctx, "examples/swift"); err != nil {
		return nil, err
	}
	s, err := deploy(ctx, f)
	if err != nil {
		return nil, err
	}
	figures = []figure{
		boot,
		{"Swift: wall over critical path", s.Wall.Seconds() / s.CriticalPath.Seconds(), "ratio", 1.02},
	}
	memory, err := measureMemory(ctx, f)
	return append(figures, memory...), err
}

// measureBoot boots four hosts of the example, without the server's.
func measureBoot(ctx context.Context, machine lab.Machine, spec lab.Spec) (figure, error) {
	spec.Name, spec.Hosts = "bench-boot", spec.Hosts[1:]
	began := time.Now()
	running, err := machine.Up(ctx, spec)
	took := time.Since(began)
	if err == nil && len(running.Hosts) != 4 {
		err = fmt.Errorf("%d hosts, not four", len(running.Hosts))
	}
	return figure{"four hosts booted", took.Seconds(), "s", 5}, errors.Join(err, machine.Down(context.WithoutCancel(ctx), spec.Name))
}

func deploy(ctx context.Context, f *app.LabFleet) (engine.Summary, error) {
	state := engine.NewState()
	job, err := f.Client.StartJob(ctx, tutti.StartJob{Plan: "deploy", Mode: tutti.ModeApply})
	if err != nil {
		return engine.Summary{}, err
	}
	err = f.Client.WatchJob(ctx, tutti.WatchJob{Job: job, Follow: true}, func(w tutti.Watched) error {
		if w.Event != nil {
			state.Apply(*w.Event)
		}
		return nil
	})
	if err != nil {
		return engine.Summary{}, err
	}
	s := state.Jobs[job].Summary(time.Now())
	if s.Outcome != tutti.VerdictSucceeded {
		return s, fmt.Errorf("the deployment %s: %s", s.Outcome, state.Jobs[job].Message)
	}
	return s, nil
}

func measureMemory(ctx context.Context, f *app.LabFleet) ([]figure, error) {
	server, err := resident(ctx, f.Server)
	if err != nil {
		return nil, err
	}
	agent := 0.0
	for _, h := range f.Nodes {
		one, err := resident(ctx, h)
		if err != nil {
			return nil, err
		}
		agent = max(agent, one)
	}
	return []figure{
		{"idle agent, resident, largest of 4", agent, "MiB", 30},
		{"server with four nodes, resident", server, "MiB", 120},
	}, nil
}

// resident is the memory of the host's tutti, in MiB.
func resident(ctx context.Context, h *lab.Host) (float64, error) {
	out, err := app.Output(ctx, h, nil, "sh", "-c", "grep VmRSS /proc/$(pgrep -xo tutti)/status")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(bytes.TrimSpace(out)))
	if len(fields) != 3 {
		return 0, fmt.Errorf("VmRSS of %s: %q", h.Name, out)
	}
	kib, err := strconv.ParseFloat(fields[1], 64)
	return kib / 1024, err
}
