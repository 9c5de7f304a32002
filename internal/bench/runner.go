package main

import (
	"context"
	"io/fs"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/wire"
)

// instantRunner is a fake Puppet that ends at once and changes nothing.
type instantRunner struct {
	watch *stopwatch
	mu    sync.Mutex
	specs map[string]agent.Spec
}

func (r *instantRunner) Start(dir string, spec agent.Spec) (agent.Process, error) {
	r.watch.note(r.watch.claimed, spec.Order.Run)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.specs == nil {
		r.specs = map[string]agent.Spec{}
	}
	r.specs[dir] = spec
	return ended{}, nil
}

func (r *instantRunner) Spec(dir string) (agent.Spec, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	spec, ok := r.specs[dir]
	if !ok {
		return spec, fs.ErrNotExist
	}
	return spec, nil
}

func (r *instantRunner) Adopt(string) (agent.Process, error) { return nil, nil }

func (r *instantRunner) Follow(context.Context, string, tutti.RunID, func([]tutti.Live)) {}

func (r *instantRunner) Judge(_ string, run tutti.RunID) tutti.Result {
	now := time.Now().UTC()
	return tutti.Result{Run: run, Outcome: tutti.Unchanged, StartedAt: now, EndedAt: now}
}

func (r *instantRunner) Refreshes(string) (agent.Refreshes, error) { return agent.Refreshes{}, nil }

func (r *instantRunner) Strangers() ([]string, error) { return nil, nil }

// The type `ended` is a process that has already ended.
type ended struct{}

func (ended) Wait(context.Context) error { return nil }
func (ended) Kill(context.Context) error { return nil }

// timedBus records when the answer to a result has come.
type timedBus struct {
	agent.Bus
	watch *stopwatch
}

func (b timedBus) Call(ctx context.Context, op string, payload []byte) ([]byte, error) {
	reply, err := b.Bus.Call(ctx, op, payload)
	if op == wire.OpResult && err == nil {
		if result, err := wire.DecodeEnded(payload); err == nil {
			b.watch.note(b.watch.durable, result.Run)
		}
	}
	return reply, err
}
