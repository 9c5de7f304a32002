package stage

import (
	"context"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/lab"
)

// Lab returns the lab commands for this machine.
func Lab() cli.Lab {
	l := labCommands{machine: lab.Machine{Log: os.Stderr}}
	return cli.Lab{
		Up: l.up, Down: l.machine.Down, List: l.list, Exec: l.exec,
		Bases: l.bases, Run: l.run,
		Faults: cli.LabFaults{
			Cut: l.fault((*lab.Host).Cut), Heal: l.fault((*lab.Host).Heal),
			Kill: l.fault((*lab.Host).Kill), Start: l.fault((*lab.Host).Start),
			Slow: l.slow, Relay: l.relay,
		},
	}
}

type labCommands struct{ machine lab.Machine }

func (l labCommands) up(ctx context.Context, file string) (cli.LabView, error) {
	spec, err := lab.ReadSpec(file)
	if err != nil {
		return cli.LabView{}, err
	}
	running, err := l.machine.Up(ctx, spec)
	if err != nil {
		return cli.LabView{}, err
	}
	return labView(running), nil
}

func (l labCommands) list(context.Context) ([]cli.LabView, error) {
	labs, err := l.machine.List()
	views := make([]cli.LabView, 0, len(labs))
	for _, running := range labs {
		views = append(views, labView(running))
	}
	return views, err
}

func labView(r *lab.Running) cli.LabView {
	view := cli.LabView{Name: r.Name, Subnet: r.Subnet.String(), Outer: r.Outer.String()}
	for _, h := range r.Hosts {
		hv := cli.LabHostView{Name: h.Name, Address: h.Address.String(), Running: h.Running()}
		if hv.Running {
			hv.Network = string(h.Network())
		}
		view.Hosts = append(view.Hosts, hv)
	}
	return view
}

func (l labCommands) exec(_ context.Context, name, host string, args []string) error {
	if err := lab.Check(); err != nil {
		return err
	}
	h, err := l.host(name, host)
	if err != nil {
		return err
	}
	return h.Exec(args...)
}

func (l labCommands) host(name, host string) (*lab.Host, error) {
	running, err := l.machine.Open(name)
	if err != nil {
		return nil, err
	}
	return running.Host(host)
}

func (l labCommands) fault(do func(*lab.Host, context.Context) error) func(context.Context, string, string) error {
	return func(ctx context.Context, name, host string) error {
		h, err := l.host(name, host)
		if err != nil {
			return err
		}
		return do(h, ctx)
	}
}

func (l labCommands) slow(ctx context.Context, name, host string, delay time.Duration, loss float64) error {
	h, err := l.host(name, host)
	if err != nil {
		return err
	}
	return h.Slow(ctx, lab.Slow{Delay: delay, Loss: loss})
}

func (l labCommands) relay(ctx context.Context, args []string) error {
	port, tap, slow, err := lab.ParseRelay(args)
	if err != nil {
		return err
	}
	return lab.Relay(ctx, port, tap, slow)
}

func (l labCommands) bases(ctx context.Context, file string) ([]string, error) {
	f, err := lab.ReadSpec(file)
	if err != nil {
		return nil, err
	}
	dirs, err := l.machine.Bases(ctx, f)
	return slices.Sorted(maps.Values(dirs)), err
}

// The method `with` returns the machine with the settings of the lab file.
func (l labCommands) with(f lab.Spec) lab.Machine {
	m := l.machine
	m.Mirror = f.Mirror
	return m
}

func (l labCommands) run(ctx context.Context, r cli.LabRun) error {
	m, def := l.machine, lab.Definition{Release: r.Release, Packages: r.Packages}
	if r.File != "" {
		f, err := lab.ReadSpec(r.File)
		if err != nil {
			return err
		}
		m, def = l.with(f), f.Definition
	}
	base, err := m.Base(ctx, def)
	if err != nil {
		return err
	}
	c := lab.Chroot{Base: base, Dir: r.Dir, Args: r.Args, Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}
	for _, b := range r.Binds {
		c.Binds = append(c.Binds, lab.Bind(b))
	}
	return commandExit(m.Run(ctx, c))
}

// RunChaos disturbs the fleet of a running lab, and returns what [Chaos.Run] returns.
func RunChaos(ctx context.Context, operator Operator, conn cli.Connection, in cli.Chaos, say func(string, ...any)) ([]string, error) {
	running, err := lab.Machine{Log: os.Stderr}.Open(in.Lab)
	if err != nil {
		return nil, err
	}
	f, err := OpenLabFleet(operator, running, conn)
	if err != nil {
		return nil, err
	}
	return Chaos{Fleet: f, Plan: in.Plan, Seed: in.Seed, For: in.For, Turns: in.Turns, Say: say}.Run(ctx)
}
