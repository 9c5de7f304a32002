package main

import (
	"context"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/internal/puppet"
	"github.com/tutti-project/tutti/wire"
)

// joiners is the number of nodes that enrol at the same time.
const joiners = 16

// simulatedFleet is a large number of agents in this process. Each agent has its own key,
// connection and directory.
type simulatedFleet struct {
	dir    string
	root   string // root is the root directory in which all agents look for Puppet.
	behind bool   // one address
	parts  sync.WaitGroup

	mu    sync.Mutex
	conns []*natsbus.Conn

	heard atomic.Int64 // heard is the number of nodes that the server has answered since `grow` or `bounce` set it to 0.
}

func nodeName(i int) tutti.NodeName { return tutti.NodeName(fmt.Sprintf("node-%05d", i)) }

// The method `grow` enrols the nodes with numbers from `from` to `to-1`, and starts their agents.
func (f *simulatedFleet) grow(ctx context.Context, s *serverProcess, from, to int) error {
	joining, joinCtx := errgroup.WithContext(ctx)
	joining.SetLimit(joiners)
	for i := from; i < to; i++ {
		joining.Go(func() error {
			token, err := s.CreateToken(joinCtx, api.CreateToken{Name: string(nodeName(i)), TTL: time.Hour})
			if err != nil {
				return err
			}
			_, err = machine.Join(joinCtx, machine.JoinOptions{Dir: f.state(i), Token: token.Text})
			return err
		})
	}
	if err := joining.Wait(); err != nil {
		return err
	}
	f.heard.Store(0)
	for i := from; i < to; i++ {
		if err := f.start(ctx, i); err != nil {
			return err
		}
	}
	return f.all(ctx, to-from)
}

func (f *simulatedFleet) state(i int) string { return filepath.Join(f.dir, string(nodeName(i))) }

func (f *simulatedFleet) start(ctx context.Context, i int) error {
	state := f.state(i)
	node, err := identity.LoadNode(filepath.Join(state, "identity"))
	if err != nil {
		return err
	}
	member, err := identity.LoadMembership(filepath.Join(state, "identity"))
	if err != nil {
		return err
	}
	local := net.IPv4(127, 1, byte(i>>8), byte(i))
	if f.behind {
		local = nil
	}
	f.parts.Go(func() {
		conn, err := natsbus.Dial(ctx, natsbus.DialOptions{
			URLs: []string{"nats://" + member.Bus}, JWT: member.JWT, Seed: node.Seed, CA: []byte(member.CA),
			Local: local,
		})
		if err != nil {
			return // ctx has ended
		}
		defer conn.Close()
		f.mu.Lock()
		f.conns = append(f.conns, conn)
		f.mu.Unlock()
		conn.OnConnect(func() { f.parts.Go(func() { f.greet(ctx, conn) }) })
		a := agent.New(agent.Options{
			Dir: state, Node: member.Node, Bus: conn, Runner: newSimulator(member.Node),
			Signers: believing{}, Logger: quiet(), KeepRuns: 1,
			Local: puppet.Local{Root: f.root}, Allow: allow,
		})
		_ = a.Run(ctx)
	})
	return nil
}

// The method `greet` sends heartbeats until the server answers one, and then counts the node.
func (f *simulatedFleet) greet(ctx context.Context, conn *natsbus.Conn) {
	for ctx.Err() == nil && conn.Connected() {
		if _, err := conn.Call(ctx, wire.OpBeat, []byte("{}")); err == nil {
			f.heard.Add(1)
			return
		}
	}
}

func (f *simulatedFleet) running() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.conns)
}

func (f *simulatedFleet) connected() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for _, c := range f.conns {
		if c.Connected() {
			count++
		}
	}
	return count
}

// comeDeadline is how long all nodes may take until the server has answered them. The deadline is much longer than
// the goal. So a slow return leads to a bad figure, not to an error.
const comeDeadline = 5 * time.Minute

// The method `all` waits until the server has answered the given number of nodes.
func (f *simulatedFleet) all(ctx context.Context, count int) error {
	ctx, cancel := context.WithTimeout(ctx, comeDeadline)
	defer cancel()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for f.heard.Load() < int64(count) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("the server has answered %d of %d nodes; %d agents run, and %d of them are connected: %w",
				f.heard.Load(), count, f.running(), f.connected(), ctx.Err())
		case <-ticker.C:
		}
	}
	return nil
}
