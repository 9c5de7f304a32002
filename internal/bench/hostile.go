package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/app"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/identity"
	"github.com/tutti-project/tutti/internal/machine"
	"github.com/tutti-project/tutti/internal/natsbus"
	"github.com/tutti-project/tutti/wire"
)

const (
	hostileNodes   = 4
	hostileCalls   = 16 // hostileCalls is the number of concurrent calls of one node, as many as the bus allows.
	hostileExports = 5000
	hostileTerms   = 900 // terms of a question. These terms cause 4.5 million comparisons, a little less than the limit.
	hostileRounds  = 5   // each round measures without and then with the hostile nodes
	hostileProbes  = 60  // in a round
	hostileEvery   = 10 * time.Millisecond
	hostileFactor  = 5
	hostileNice    = 19
)

const hostileFleet = `fleet: bench
environment: {name: production, path: ./code}
groups:
  all: {joined: true}
  from: {nodes: [exporter]}
  evil: {nodes: [evil-0, evil-1, evil-2, evil-3]}
grants:
  - {to: from, exports: [{type: Database, defined: true, most: 50000}]}
plans:
  begin: {steps: [{run: from}]}
  ask: {steps: [{run: evil}]}
`

// measureHostile measures how long an honest node's claim and an operator's write take, without and
// with four hostile nodes. The hostile nodes send questions without a pause, but stay within all
// bounds.
func measureHostile(ctx context.Context, o options) (figures []figure, err error) {
	dir, err := os.MkdirTemp("", "tutti-bench-hostile-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	s, err := newServerProcess(o, dir)
	if err != nil {
		return nil, err
	}
	defer s.end()
	if err := s.start(ctx); err != nil {
		return nil, err
	}
	h := &hostile{server: s, dir: dir}
	if err := h.prepare(ctx); err != nil {
		return nil, err
	}
	honest, err := joined(ctx, s, dir, "honest")
	if err != nil {
		return nil, err
	}
	defer honest.Close()
	var alone, beside latencies
	for range hostileRounds {
		if err := alone.probe(ctx, s, honest); err != nil {
			return nil, err
		}
		stop, err := h.attack()
		if err != nil {
			return nil, err
		}
		if err := errors.Join(beside.probe(ctx, s, honest), stop()); err != nil {
			return nil, err
		}
	}
	return slices.Concat(compare("a claim", alone.claims, beside.claims), compare("an operator's write", alone.writes, beside.writes)), nil
}

func compare(what string, alone, beside []time.Duration) []figure {
	name := fmt.Sprintf("%s beside %d hostile nodes", what, hostileNodes)
	return []figure{
		{what + ", median", quantile(alone, 0.5), "ms", 0},
		{name + ", median", quantile(beside, 0.5), "ms", 0},
		{name + ", p99", quantile(beside, 0.99), "ms", 0},
		{name + ", median", quantile(beside, 0.5) / quantile(alone, 0.5), "times", hostileFactor},
	}
}

// latencies are the times of the honest requests.
type latencies struct{ claims, writes []time.Duration }

func (l *latencies) probe(ctx context.Context, s *serverProcess, honest *natsbus.Conn) error {
	for i := range hostileProbes {
		if err := sleep(ctx, hostileEvery); err != nil {
			return err
		}
		began := time.Now()
		if _, err := honest.Call(ctx, wire.OpClaim, []byte("{}")); err != nil {
			return fmt.Errorf("claim: %w", err)
		}
		l.claims = append(l.claims, time.Since(began))
		began = time.Now()
		if err := s.SetValue(ctx, "bench/hostile", json.RawMessage(strconv.Itoa(i))); err != nil {
			return fmt.Errorf("write: %w", err)
		}
		l.writes = append(l.writes, time.Since(began))
	}
	return nil
}

// hostile is the fleet with the hostile nodes.
type hostile struct {
	server *serverProcess
	dir    string
}

// prepare lets one node export resources, and gives each hostile node a run.
func (h *hostile) prepare(ctx context.Context) error {
	code := filepath.Join(h.dir, "code")
	if err := os.MkdirAll(filepath.Join(code, "manifests"), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(code, "manifests", "site.pp"), []byte("# nothing\n"), 0o600); err != nil {
		return err
	}
	if _, err := app.Commands().Push(ctx, h.server.Client, cli.Connection{OperatorDir: h.server.operator}, cli.PushCode{Dir: code, Environment: "production"}); err != nil {
		return err
	}
	if _, err := h.server.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(hostileFleet)}); err != nil {
		return err
	}
	exporter, err := joined(ctx, h.server, h.dir, "exporter")
	if err != nil {
		return err
	}
	defer exporter.Close()
	run, err := h.begin(ctx, "begin", exporter)
	if err != nil {
		return err
	}
	gate := wire.Gate{Run: run}
	for i := range hostileExports {
		gate.Exports = append(gate.Exports, tutti.Export{Type: "Database", Title: fmt.Sprintf("db-%d", i), Parameters: map[string]json.RawMessage{"port": json.RawMessage("5432")}})
	}
	now := time.Now().UTC()
	if err := errors.Join(say(ctx, exporter, wire.OpGate, gate), say(ctx, exporter, wire.OpResult, tutti.Result{Run: run, Outcome: tutti.Changed, StartedAt: now, EndedAt: now})); err != nil {
		return err
	}
	var evil []*natsbus.Conn
	for i := range hostileNodes {
		conn, err := joined(ctx, h.server, h.dir, evilName(i))
		if err != nil {
			return err
		}
		defer conn.Close()
		evil = append(evil, conn)
	}
	if _, err := h.server.StartJob(ctx, api.StartJob{Plan: "ask", Mode: tutti.ModeApply}); err != nil {
		return err
	}
	for i, conn := range evil {
		run, err := claimed(ctx, conn)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(h.dir, string(evilName(i)), "run"), []byte(run), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func evilName(i int) tutti.NodeName { return tutti.NodeName(fmt.Sprintf("evil-%d", i)) }

func (h *hostile) begin(ctx context.Context, plan tutti.PlanName, conn *natsbus.Conn) (tutti.RunID, error) {
	if _, err := h.server.StartJob(ctx, api.StartJob{Plan: plan, Mode: tutti.ModeApply}); err != nil {
		return "", err
	}
	return claimed(ctx, conn)
}

func claimed(ctx context.Context, conn *natsbus.Conn) (tutti.RunID, error) {
	raw, err := json.Marshal(wire.Claim{Knows: tutti.Capabilities()})
	if err != nil {
		return "", err
	}
	answer, err := conn.Call(ctx, wire.OpClaim, raw)
	if err != nil {
		return "", err
	}
	var out wire.Claimed
	if err := json.Unmarshal(answer, &out); err != nil || out.Order == nil {
		return "", fmt.Errorf("no order for a node: %s, %w", answer, err)
	}
	return out.Order.Run, nil
}

func say(ctx context.Context, conn *natsbus.Conn, op string, in any) error {
	raw, err := json.Marshal(in)
	if err == nil {
		_, err = conn.Call(ctx, op, raw)
	}
	return err
}

// joined creates a node and connects it.
func joined(ctx context.Context, s *serverProcess, dir string, name tutti.NodeName) (*natsbus.Conn, error) {
	token, err := s.CreateToken(ctx, api.CreateToken{Name: string(name), TTL: time.Hour})
	if err != nil {
		return nil, err
	}
	state := filepath.Join(dir, string(name))
	if _, err := machine.Join(ctx, machine.JoinOptions{Dir: state, Token: token.Text}); err != nil {
		return nil, err
	}
	return connected(ctx, state)
}

// connected connects a node that has joined.
func connected(ctx context.Context, state string) (*natsbus.Conn, error) {
	node, err := identity.LoadNode(filepath.Join(state, "identity"))
	if err != nil {
		return nil, err
	}
	member, err := identity.LoadMembership(filepath.Join(state, "identity"))
	if err != nil {
		return nil, err
	}
	there := make(chan struct{}, 1)
	conn, err := natsbus.Dial(ctx, natsbus.DialOptions{URLs: []string{"nats://" + member.Bus}, JWT: member.JWT, Seed: node.Seed, CA: []byte(member.CA)})
	if err != nil {
		return nil, err
	}
	conn.OnConnect(func() {
		select {
		case there <- struct{}{}:
		default:
		}
	})
	for !conn.Connected() {
		select {
		case <-there:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(10 * time.Millisecond):
		}
	}
	return conn, nil
}

// attack starts the hostile nodes in a separate process with the lowest priority, because only the
// server's work should be measured. The method returns after the nodes have begun.
func (h *hostile) attack() (stop func() error, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, "-attack", h.dir) //nolint:noctx // stop ends it
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	stop = func() error {
		err := cmd.Process.Kill()
		_ = cmd.Wait() // ended by us
		return err
	}
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, cmd.Process.Pid, hostileNice); err != nil {
		return nil, errors.Join(err, stop())
	}
	if _, err := out.Read(make([]byte, 1)); err != nil {
		return nil, errors.Join(fmt.Errorf("the attack has not begun: %w", err), stop())
	}
	return stop, nil
}

// attackFrom is the process of the hostile nodes. Each node sends as many questions as it may,
// until the process is killed.
func attackFrom(ctx context.Context, dir string) error {
	if err := syscall.Setpriority(syscall.PRIO_PROCESS, 0, hostileNice); err != nil {
		return err
	}
	var terms []string
	for i := range hostileTerms {
		terms = append(terms, fmt.Sprintf(`["=","port",%d]`, i))
	}
	costly := tutti.Query{Kind: tutti.QueryCollect, Type: "Database", Filter: json.RawMessage(`["or",` + strings.Join(terms, ",") + `]`)}
	group, ctx := errgroup.WithContext(ctx)
	for i := range hostileNodes {
		state := filepath.Join(dir, string(evilName(i)))
		run, err := os.ReadFile(filepath.Join(state, "run"))
		if err != nil {
			return err
		}
		conn, err := connected(ctx, state)
		if err != nil {
			return err
		}
		for range hostileCalls {
			group.Go(func() error {
				for ctx.Err() == nil {
					_ = say(ctx, conn, wire.OpAsk, wire.Question{Run: tutti.RunID(run), Query: costly}) // it may be refused
				}
				return nil
			})
		}
	}
	fmt.Println("begun")
	return group.Wait()
}
