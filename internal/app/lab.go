package app

import (
	"context"
	"os"

	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/lab"
)

// Lab is the lab commands' way to this machine.
func Lab() cli.Lab {
	l := labCommands{machine: lab.Machine{Log: os.Stderr}}
	return cli.Lab{
		Up: l.up, Down: l.machine.Down, List: l.list, Exec: l.exec,
		Base: l.base, Run: l.run,
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
		view.Hosts = append(view.Hosts, cli.LabHostView{Name: h.Name, Address: h.Address.String(), Running: h.Running()})
	}
	return view
}

func (l labCommands) exec(_ context.Context, name, host string, args []string) error {
	if err := lab.Check(); err != nil {
		return err
	}
	running, err := l.machine.Open(name)
	if err != nil {
		return err
	}
	h, err := running.Host(host)
	if err != nil {
		return err
	}
	return h.Exec(args...)
}

func (l labCommands) base(ctx context.Context, file string) (string, error) {
	f, err := lab.ReadSpec(file)
	if err != nil {
		return "", err
	}
	return l.with(f).Base(ctx, f.Definition)
}

// with is the machine as the lab file wants it.
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
