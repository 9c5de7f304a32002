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
	return cli.Lab{Base: l.base, Run: l.run}
}

type labCommands struct{ machine lab.Machine }

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
