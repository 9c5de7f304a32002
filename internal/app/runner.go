package app

import (
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/puppet"
)

// runner connects package puppet with the interfaces of package agent.
type runner struct {
	root      string
	launcher  string
	modules   string
	digestKey string
	warm      *puppet.Warm
}

const (
	lockTimeout = 3600 // seconds
	gateTimeout = 600
	followEvery = 100 * time.Millisecond
)

func (r *runner) Start(dir string, spec agent.Spec) (agent.Process, error) {
	install, err := puppet.Find(r.root)
	if err != nil {
		return nil, err
	}
	order := puppet.Order{
		Protocol: puppet.Protocol, Run: spec.Order.Run, Node: spec.Node, Mode: spec.Order.Mode, Program: spec.Order.Program,
		Environment: spec.Order.Environment, EnvironmentPath: spec.EnvironmentPath, ModulePath: []string{r.modules},
		Socket: spec.Socket, LockTimeout: lockTimeout, GateTimeout: gateTimeout,
		Tags: nonNil(spec.Order.Tags), SkipTags: nonNil(spec.Order.SkipTags), VolatileFacts: nonNil(spec.Order.VolatileFacts), Debug: spec.Order.Debug, Diff: spec.Order.Diff, DigestKey: r.digestKey,
		Owed: spec.Owed, ENC: spec.Order.ENC,
		Tutti: spec.Order, Launcher: r.launcher, StartedAt: spec.StartedAt,
	}
	if spec.Order.Exclusive { // an exclusive job has disabled all Puppet runs other than its own
		order.DisabledLock = filepath.Join(dir, "agent_disabled.lock")
	}
	if err := puppet.WriteOrder(dir, order); err != nil {
		return nil, err
	}
	p, err := r.warm.Start(dir, factsFor(spec.Order))
	if p == nil { // if p is nil, no process was started
		if err != nil {
			err = puppet.NoteCold(dir, err)
		}
		if err != nil {
			return nil, err
		}
		p, err = puppet.Start(install, dir, order)
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

func (r *runner) Spec(dir string) (agent.Spec, error) {
	o, err := puppet.ReadOrder(dir)
	return agent.Spec{
		Order: o.Tutti, Node: o.Node, EnvironmentPath: o.EnvironmentPath, Socket: o.Socket, StartedAt: o.StartedAt,
	}, err
}

func (r *runner) Adopt(dir string) (agent.Process, error) {
	p, err := puppet.Adopt(dir)
	if err != nil || p == nil {
		return nil, err
	}
	return p, nil
}

func (r *runner) Follow(ctx context.Context, dir string, run tutti.RunID, yield func([]tutti.Live)) {
	f := puppet.Follow(dir, run)
	defer f.Close()
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		if lives, err := f.Next(); err == nil && len(lives) > 0 {
			yield(lives)
		}
		select {
		case <-ctx.Done():
			if lives, err := f.Next(); err == nil && len(lives) > 0 {
				yield(lives) // the last events
			}
			return
		case <-ticker.C:
		}
	}
}

func (r *runner) Judge(dir string, run tutti.RunID) tutti.Result { return puppet.Judge(dir, run) }

func (r *runner) Refreshes(dir string) (agent.Refreshes, error) {
	due, over, err := puppet.Refreshes(dir)
	return agent.Refreshes{Due: due, Over: over}, err
}

// Collect implements agent.Facts.
func (r *runner) Collect(dir string) error {
	order, err := puppet.ReadOrder(dir)
	if err != nil {
		return err
	}
	return r.warm.Collect(dir, code(order.Tutti))
}

// Collected implements agent.Facts.
func (r *runner) Collected(dir string) (agent.FactsNow, error) {
	now, err := puppet.ReadFactsNow(dir)
	return agent.FactsNow{Facts: now.Facts, Changed: now.Changed, Watch: now.Watch, At: now.At, Began: now.Began}, err
}

// The function `code` returns a key for the code with which facts were collected.
func code(o tutti.Order) string {
	return strings.Join([]string{string(o.Program), o.Environment, string(o.Code)}, " ")
}

// factsFor returns the key of the code for which facts may be collected ahead of a run.
// factsFor returns an empty key if facts may not be collected.
func factsFor(o tutti.Order) string {
	if o.FreshFacts {
		return ""
	}
	return code(o)
}

func (r *runner) Strangers() ([]string, error) { return puppet.Strangers() }

// nonNil returns a list that becomes [], not null, in JSON.
func nonNil(list []string) []string { return append([]string{}, list...) }
