package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/natsbus"
)

// gapSteps is the number of consecutive steps, which alternate between two nodes.
const gapSteps = 300

// measureGap measures the scheduling gap. The gap begins when a node knows that its result is
// durable, and ends when the next node has its order. Server, bus, TLS, fsync and agents are real.
// There is no Puppet, and a run ends at once.
func measureGap(ctx context.Context, _ options) ([]figure, error) {
	w := &stopwatch{claimed: map[tutti.RunID]time.Time{}, durable: map[tutti.RunID]time.Time{}}
	var gaps []time.Duration
	err := withServer(ctx, func(ctx context.Context, s *localServer) error {
		for _, node := range []tutti.NodeName{"left", "right"} {
			if err := startNode(ctx, s, node, w); err != nil {
				return err
			}
		}
		order, err := runChain(ctx, s)
		if err == nil {
			gaps, err = w.gaps(order)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return []figure{
		{"scheduling gap, median", quantile(gaps, 0.5), "ms", 20},
		{"scheduling gap, p99", quantile(gaps, 0.99), "ms", 100},
	}, nil
}

// startNode joins a node and runs its agent with a fake Puppet that ends at once.
func startNode(ctx context.Context, s *localServer, name tutti.NodeName, w *stopwatch) error {
	state := filepath.Join(s.dir, string(name))
	token, err := s.CreateToken(ctx, api.CreateToken{Name: string(name)})
	if err != nil {
		return err
	}
	if _, err := machine.Join(ctx, machine.JoinOptions{Dir: state, Token: token.Text}); err != nil {
		return err
	}
	node, err := identity.LoadNode(filepath.Join(state, "identity"))
	if err != nil {
		return err
	}
	member, err := identity.LoadMembership(filepath.Join(state, "identity"))
	if err != nil {
		return err
	}
	conn, err := natsbus.Dial(ctx, natsbus.DialOptions{
		URLs: []string{"nats://" + member.Bus}, JWT: member.JWT, Seed: node.Seed, CA: []byte(member.CA),
	})
	if err != nil {
		return err
	}
	a := agent.New(agent.Options{
		Dir: state, Node: name, Bus: timedBus{conn, w}, Runner: &instantRunner{watch: w},
		Signers: believing{}, Logger: quiet(), KeepRuns: 1,
	})
	s.parts.Go(func() { defer conn.Close(); _ = a.Run(ctx) })
	return nil
}

// runChain executes a plan whose steps alternate between the two nodes, and returns the runs in
// their order.
func runChain(ctx context.Context, s *localServer) ([]tutti.RunID, error) {
	code := filepath.Join(s.dir, "code")
	if err := os.MkdirAll(filepath.Join(code, "manifests"), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(code, "manifests", "site.pp"), []byte("# nothing\n"), 0o644); err != nil {
		return nil, err
	}
	if _, err := app.Commands().Push(ctx, s, cli.Connection{OperatorDir: s.operator}, cli.PushCode{Dir: code, Environment: "production"}); err != nil {
		return nil, err
	}
	fleet := "fleet: bench\nenvironment: {name: production, path: ./code}\ngroups:\n  l: {nodes: [left]}\n  r: {nodes: [right]}\nplans:\n  chain:\n    steps:\n"
	for i := range gapSteps {
		fleet += fmt.Sprintf("      - run: %c\n", "lr"[i%2])
	}
	if _, err := s.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(fleet)}); err != nil {
		return nil, err
	}
	job, err := s.StartJob(ctx, api.StartJob{Plan: "chain", Mode: tutti.ModeApply})
	if err != nil {
		return nil, err
	}
	var order []tutti.RunID
	err = s.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(watched api.Watched) error {
		if watched.Event == nil {
			return nil
		}
		switch b := watched.Event.Body.(type) {
		case *tutti.RunClaimed:
			order = append(order, b.Run)
		case *tutti.JobFinished:
			if b.Verdict != tutti.VerdictSucceeded {
				return fmt.Errorf("the chain %s: %s", b.Verdict, b.Message)
			}
		}
		return nil
	})
	return order, err
}

// stopwatch records when a node got its order, and when it knew that the server had its result.
type stopwatch struct {
	mu      sync.Mutex
	claimed map[tutti.RunID]time.Time
	durable map[tutti.RunID]time.Time
}

func (w *stopwatch) note(m map[tutti.RunID]time.Time, run tutti.RunID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := m[run]; !ok {
		m[run] = time.Now()
	}
}

func (w *stopwatch) gaps(order []tutti.RunID) ([]time.Duration, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var out []time.Duration
	for i := 1; i < len(order); i++ {
		durable, claimed := w.durable[order[i-1]], w.claimed[order[i]]
		if durable.IsZero() || claimed.IsZero() {
			return nil, fmt.Errorf("the times of run %d of %d are missing", i, len(order))
		}
		out = append(out, claimed.Sub(durable))
	}
	return out, nil
}
