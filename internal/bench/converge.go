package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/server"
	"github.com/tutti-project/tutti/internal/servertest"
	"github.com/tutti-project/tutti/wire"
)

const (
	convergeNodes = 10_000
	convergeRoles = 20
	// Each node has convergeReads questions with an answer. The last of these questions is the
	// same for convergeReaders nodes, and no other node asks it.
	convergeReads   = 50
	convergeReaders = 100
	convergeAbsent  = 1950
	convergeRounds  = 21
	unreadRounds    = 200
	// busyNodes is how many simulated nodes claim at the same time, and also how many nodes are at
	// their gates at the same time.
	busyNodes       = 16
	convergeCompile = time.Second
)

// measureConverge measures the effects of a change in a fleet of 10,000 nodes with 2,000 questions
// each. measureConverge uses the server's own code on the real log, in memory and without TLS. The
// nodes are simulated: the code only calls the server's handlers as nodes would.
func measureConverge(ctx context.Context, o options) (figures []figure, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "tutti-bench-converge-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	made, err := newServerProcess(o, dir) // only its data directory is needed
	if err != nil {
		return nil, err
	}
	figures = append(figures, measureIndex()...)
	f := &convergeFleet{rung: make(chan int, 4*convergeNodes), compiled: make(chan int, 4*convergeNodes), claimed: make(chan struct{}, convergeNodes)}
	err = serveHere(ctx, made.data, f, func(ctx context.Context, s *server.Server) error {
		f.server = s
		group, acting := errgroup.WithContext(ctx)
		acting, cancel := context.WithCancel(acting)
		f.start(acting, group)
		group.Go(func() error {
			defer cancel()
			more, err := f.measure(acting)
			figures = append(figures, more...)
			return err
		})
		return group.Wait()
	})
	return figures, err
}

// convergeFleet simulates nodes that react to a doorbell at once.
type convergeFleet struct {
	server         *server.Server
	numbers        map[tutti.NodeKey]int
	busy           [convergeNodes]sync.Mutex
	runs           [convergeNodes]tutti.RunID // the last ones
	rung, compiled chan int
	claimed        chan struct{}
	read           [convergeRoles][]tutti.Read // without the last
	keys           [convergeRoles][]tutti.KeyRead
}

// Ring is the doorbell of a node.
func (f *convergeFleet) Ring(key tutti.NodeKey, op string, _ []byte) error {
	if op == wire.RingGate {
		f.compiled <- f.numbers[key]
	} else {
		f.rung <- f.numbers[key]
	}
	return nil
}

func (f *convergeFleet) start(ctx context.Context, group *errgroup.Group) {
	for range busyNodes {
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case i := <-f.rung:
					if err := f.claim(ctx, i); err != nil {
						return fmt.Errorf("node %d: %w", i, err)
					}
				}
			}
		})
		group.Go(func() error {
			for {
				select {
				case <-ctx.Done():
					return nil
				case i := <-f.compiled:
					if err := f.apply(ctx, i); err != nil {
						return fmt.Errorf("node %d: %w", i, err)
					}
				}
			}
		})
	}
}

func (f *convergeFleet) call(ctx context.Context, i int, op string, in, out any) error {
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	reply, err := f.server.Handle(ctx, servertest.Key(string(nodeName(i))), op, raw)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(reply, out)
}

// The method `claim` claims a run and then compiles for some time.
func (f *convergeFleet) claim(ctx context.Context, i int) error {
	f.busy[i].Lock()
	defer f.busy[i].Unlock()
	var claimed wire.Claimed
	if err := f.call(ctx, i, wire.OpClaim, wire.Claim{}, &claimed); err != nil || claimed.Order == nil {
		return err
	}
	if run := claimed.Order.Run; f.runs[i] != run {
		f.runs[i] = run
		f.claimed <- struct{}{}
		time.AfterFunc(convergeCompile, func() { f.compiled <- i })
	}
	return nil
}

// The method `apply` sends the message of the gate for the node's run. If the run may go, the
// method also sends the other messages of the run. If the server holds the run, the method is
// called again when the doorbell rings.
func (f *convergeFleet) apply(ctx context.Context, i int) error {
	f.busy[i].Lock()
	defer f.busy[i].Unlock()
	run := f.runs[i]
	q := tutti.Query{Kind: tutti.QueryValue, Key: changing(i)}
	var answered wire.Answer
	if err := f.call(ctx, i, wire.OpAsk, wire.Question{Run: run, Query: q}, &answered); err != nil {
		return nil // the doorbell was for an older run, which has already ended
	}
	role := i % convergeRoles
	reads := slices.Concat(f.read[role], []tutti.Read{{Query: q, Found: answered.Found, Digest: answered.Digest}})
	same := tutti.DigestOf([]byte("same"))
	var gated wire.Gated
	gate := wire.Gate{Run: run, Reads: reads, Keys: f.keys[role], CatalogReport: tutti.CatalogReport{Catalog: same, Sources: same, Lib: same}}
	if err := f.call(ctx, i, wire.OpGate, gate, &gated); err != nil || gated.Verdict == tutti.GateHold {
		return nil // as above
	}
	result := servertest.Result(run, tutti.Changed)
	if gated.Verdict == tutti.GateStop {
		result.Outcome, result.Stopped = "", true
	}
	return f.call(ctx, i, wire.OpResult, result, nil)
}

// The function `changing` returns the key of a node's last question. Only convergeReaders nodes
// read this value.
func changing(i int) string { return fmt.Sprintf("shared/change/%d", i/convergeReaders) }

func (f *convergeFleet) measure(ctx context.Context) (figures []figure, err error) {
	if err := f.join(ctx); err != nil {
		return nil, err
	}
	began := time.Now()
	if err := f.first(ctx); err != nil {
		return nil, err
	}
	figures = append(figures, figure{"10,000 first runs in 20 plans", time.Since(began).Seconds(), "s", 0})
	var changes, unread []time.Duration
	for round := range convergeRounds {
		began := time.Now()
		if err := f.server.SetValue(ctx, changing(round*convergeReaders), []byte(`"other"`)); err != nil {
			return nil, err
		}
		job, err := f.server.StartJob(ctx, api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
		if err != nil {
			return nil, err
		}
		if err := f.claims(ctx, convergeReaders); err != nil {
			return nil, err
		}
		changes = append(changes, time.Since(began))
		if err := f.ended(ctx, job, tutti.VerdictConverged); err != nil {
			return nil, err
		}
	}
	for round := range unreadRounds {
		began := time.Now()
		if err := f.server.SetValue(ctx, "shared/hiera/unread", fmt.Append(nil, round)); err != nil {
			return nil, err
		}
		unread = append(unread, time.Since(began))
	}
	return append(figures,
		figure{"change to the 100th claim, 10,000 nodes, median", quantile(changes, 0.5), "ms", 250},
		figure{"change to the 100th claim, the longest", quantile(changes, 1), "ms", 0},
		figure{"a change that nobody reads, median", quantile(unread, 0.5), "ms", 1}), nil
}

// The method `join` lets all nodes join and sets the values that they read.
func (f *convergeFleet) join(ctx context.Context) error {
	f.numbers = map[tutti.NodeKey]int{}
	var text strings.Builder
	text.WriteString("fleet: bench\nenvironment: {name: production, path: ./code}\ngroups:\n")
	plans := "plans:\n"
	for role := range convergeRoles {
		fmt.Fprintf(&text, "  role%d: {nodes: [", role)
		for i := role; i < convergeNodes; i += convergeRoles {
			fmt.Fprintf(&text, "%s, ", nodeName(i))
		}
		text.WriteString("]}\n")
		plans += fmt.Sprintf("  role%d: {steps: [{run: role%d}]}\n", role, role)
		for k := range convergeAbsent {
			f.keys[role] = append(f.keys[role], tutti.KeyRead{Key: fmt.Sprintf("role%02d::class%02d::parameter%d", role, k%40, k)})
		}
	}
	for i := range convergeNodes {
		f.numbers[servertest.Key(string(nodeName(i)))] = i
	}
	group, joining := errgroup.WithContext(ctx)
	group.SetLimit(busyNodes)
	for i := range convergeNodes {
		group.Go(func() error { return pastServer{f.server}.join(joining, nodeName(i)) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if _, err := f.server.SetFleet(ctx, api.FleetSource{File: "tutti.yaml", Source: []byte(text.String() + plans)}); err != nil {
		return err
	}
	if _, err := f.server.PushCode(ctx, tutti.CodePush{SignedCode: servertest.Sign(tutti.CodeManifest{Version: 1, Environment: "production"})}); err != nil {
		return err
	}
	for i := 0; i < convergeNodes; i += convergeReaders {
		if err := f.server.SetValue(ctx, changing(i), []byte(`"one"`)); err != nil {
			return err
		}
	}
	for role := range convergeRoles {
		for k := range convergeReads - 1 {
			key, value := fmt.Sprintf("shared/role%d/%d", role, k), []byte(`"a setting of the role"`)
			if err := f.server.SetValue(ctx, key, value); err != nil {
				return err
			}
			f.read[role] = append(f.read[role], tutti.Read{
				Query: tutti.Query{Kind: tutti.QueryValue, Key: key}, Found: true, Digest: tutti.DigestOf(value),
			})
		}
	}
	return nil
}

// The method `first` lets each node run for the first time. The roles run one after the other.
func (f *convergeFleet) first(ctx context.Context) error {
	for role := range convergeRoles {
		job, err := f.server.StartJob(ctx, api.StartJob{Plan: tutti.PlanName(fmt.Sprintf("role%d", role)), Mode: tutti.ModeApply})
		if err != nil {
			return err
		}
		if err := f.claims(ctx, convergeNodes/convergeRoles); err != nil {
			return err
		}
		if err := f.ended(ctx, job, tutti.VerdictSucceeded); err != nil {
			return err
		}
	}
	return nil
}

// The method `claims` waits until nodes have claimed `count` more runs.
func (f *convergeFleet) claims(ctx context.Context, count int) error {
	for range count {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-f.claimed:
		case <-time.After(startDeadline):
			return fmt.Errorf("no node has claimed a run within %s", startDeadline)
		}
	}
	return nil
}

func (f *convergeFleet) ended(ctx context.Context, job tutti.JobID, want tutti.Verdict) error {
	for {
		jobs, err := f.server.ListJobs(ctx)
		if err != nil {
			return err
		}
		if jobs[0].Job == job && jobs[0].Verdict != "" {
			if jobs[0].Verdict != want {
				return fmt.Errorf("job %s: %s: %s", job, jobs[0].Verdict, jobs[0].Message)
			}
			return nil
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// measureIndex uses only the folds, without a server. It measures the memory of the index, and the
// time of one decision when all nodes need a run.
func measureIndex() []figure {
	cold := newConvergeFold()
	cold.startJob()
	out := []figure{{"one decision, 10,000 nodes that never ran", cold.decision(), "ms", 0}}
	known := newConvergeFold()
	before := heap()
	known.remember()
	out = append(out, figure{"index of 10,000 nodes, 2,000 questions each", float64(heap()-before) / (1 << 20), "MiB", 200})
	known.startJob()
	return append(out, figure{"one decision, 10,000 nodes whose reads are known", known.decision(), "ms", 0})
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// convergeFold is the fold of a log with 10,000 nodes that need a run.
type convergeFold struct {
	engine   *engine.State
	data     *data.State
	converge *converge.State
	seq      uint64
	names    []tutti.NodeName
	code     tutti.Digest
}

func newConvergeFold() *convergeFold {
	f := &convergeFold{engine: engine.NewState(), data: data.NewState(), code: tutti.DigestOf([]byte("code"))}
	f.converge = converge.New(f.engine, f.data)
	for i := range convergeNodes {
		f.names = append(f.names, nodeName(i))
		f.apply(&tutti.NodeEnrolled{Node: nodeName(i)})
	}
	f.apply(&tutti.CodePushed{Environment: "production", Code: f.code})
	return f
}

func (f *convergeFold) apply(b tutti.Body) {
	f.seq++
	e := tutti.Event{Seq: f.seq, At: time.Now(), Body: b}
	f.engine.Apply(e)
	f.data.Apply(e)
	f.converge.Apply(e)
}

// The method `remember` gives every node its reads and a key to publish. The order of the nodes'
// runs follows from the reads and the keys.
func (f *convergeFold) remember() {
	for i, name := range f.names {
		role := i % convergeRoles
		asked := &tutti.Questions{Absent: tutti.DigestOf(fmt.Append(nil, role))}
		for k := range convergeAbsent {
			asked.Keys = append(asked.Keys, fmt.Sprintf("role%02d::class%02d::parameter%d", role, k%40, k))
		}
		for k := range convergeReads - 1 {
			asked.Reads = append(asked.Reads, tutti.Read{Query: tutti.Query{Kind: tutti.QueryValue, Key: fmt.Sprintf("shared/role%d/%d", role, k)}})
		}
		asked.Reads = append(asked.Reads, tutti.Read{Query: tutti.Query{Kind: tutti.QueryCollect, Type: "Host"}, Found: true})
		f.data.Remember(name, asked, "")
		f.data.Declare(name, []string{"node/" + string(name) + "/run"})
	}
}

func (f *convergeFold) startJob() {
	f.apply(&tutti.JobStarted{
		Job: f.engine.NextJob("converge"), Mode: tutti.ModeApply, Env: "production", Code: f.code,
		Plan: tutti.Plan{Name: "converge", Steps: []tutti.Step{{Name: "converge", Timeout: time.Hour, Converge: &tutti.ConvergeStep{}}}},
	})
}

// The method `decision` returns the time of one decision about all nodes, in milliseconds.
func (f *convergeFold) decision() float64 {
	now := time.Now()
	view := converge.View{
		Now: now, Since: now.Add(-time.Hour), Silence: time.Hour, Compiles: 200,
		Seen:   func(tutti.NodeName) time.Time { return now },
		Has:    func(tutti.NodeName) converge.Has { return converge.Has{} },
		Paused: func(tutti.NodeName) string { return "" },
		Member: func(string, tutti.NodeName) bool { return true },
	}
	var times []time.Duration
	for range 5 {
		began := time.Now()
		f.converge.Decide(view)
		times = append(times, time.Since(began))
	}
	return quantile(times, 0.5)
}
