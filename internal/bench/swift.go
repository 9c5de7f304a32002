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
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// measureSwift boots the four hosts of the example and deploys Swift on them. measureSwift compares
// the time of the orchestration with Puppet's own time, and measures memory.
func measureSwift(ctx context.Context, o options) (figures []figure, err error) {
	spec, err := lab.ReadSpec(swiftLab)
	if err != nil {
		return nil, err
	}
	machine := lab.Machine{Log: os.Stderr}
	if _, err := machine.Base(ctx, spec.Definition); err != nil {
		return nil, err // the host images are built now, before the time is measured
	}
	boot, err := measureBoot(ctx, machine, spec)
	if err != nil {
		return nil, err
	}
	err = onSwift(ctx, "bench", o, func(f *stage.LabFleet, _ string) error {
		s, err := deploy(ctx, f)
		if err != nil {
			return err
		}
		memory, err := measureMemory(ctx, f)
		figures = append([]figure{
			boot,
			{"Swift: wall over critical path", s.Wall.Seconds() / s.CriticalPath.Seconds(), "ratio", 1.02},
		}, memory...)
		return err
	})
	return figures, err
}

const swiftLab = "examples/swift/lab.yaml"

// onSwift calls a function with a new fleet on the hosts of the Swift example, and with a
// directory. Afterwards the fleet and the directory are removed.
func onSwift(ctx context.Context, name string, o options, do func(f *stage.LabFleet, dir string) error) (err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	spec, err := lab.ReadSpec(swiftLab)
	if err != nil {
		return err
	}
	spec.Name = name
	machine := lab.Machine{Log: os.Stderr}
	running, err := machine.Up(ctx, spec)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, machine.Down(context.WithoutCancel(ctx), spec.Name)) }()
	f, err := app.StartLabFleet(ctx, running, "tutti", o.binary, dir)
	if err != nil {
		return err
	}
	if err := f.Push(ctx, "examples/swift"); err != nil {
		return err
	}
	return do(f, dir)
}

// measureBoot measures the boot of four hosts of the example. The server's host is not one of these
// hosts.
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

func deploy(ctx context.Context, f *stage.LabFleet) (engine.Summary, error) {
	job, err := finished(ctx, f, "deploy")
	if err != nil {
		return engine.Summary{}, err
	}
	s := job.Summary(time.Now())
	if s.Outcome != tutti.VerdictSucceeded {
		return s, fmt.Errorf("the deployment %s: %s", s.Outcome, job.Message)
	}
	return s, nil
}

// The function `finished` executes a plan and returns its job after the job's end.
func finished(ctx context.Context, f *stage.LabFleet, plan tutti.PlanName) (*engine.Job, error) {
	state := engine.NewState()
	job, err := f.Client.StartJob(ctx, api.StartJob{Plan: plan, Mode: tutti.ModeApply})
	if err != nil {
		return nil, err
	}
	err = f.Client.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		if w.Event != nil {
			state.Apply(*w.Event)
		}
		return nil
	})
	if err == nil && state.Jobs[job] == nil {
		err = fmt.Errorf("job %s was not seen", job)
	}
	return state.Jobs[job], err
}

func measureMemory(ctx context.Context, f *stage.LabFleet) ([]figure, error) {
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

// The function `resident` returns the memory of the tutti process on the host, in MiB.
func resident(ctx context.Context, h *lab.Host) (float64, error) {
	out, err := stage.Output(ctx, h, nil, "sh", "-c", "grep VmRSS /proc/$(pgrep -xo tutti)/status")
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
