package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/agent"
	"github.com/tutti-project/tutti/internal/servertest"
)

const onePlan = `
fleet: test
environment: {name: production, path: ./code}
groups: {db: {nodes: [db-01]}}
grants:
  - {to: db, write: [db/**], exports: [{type: Database, defined: true}]}
plans:
  deploy:
    steps: [{run: db}]
`

// If an event does not come within the time `hang`, the test fails. Even on a slow machine every
// event comes earlier.
const hang = 3 * time.Minute

// The function `impatient` makes an agent that gives up soon if the server is away.
func impatient(o *agent.Options) { o.Patience = 2 * time.Second }

// lab is a server and one node with its agent.
type lab struct {
	t     *testing.T
	fleet *servertest.Fleet
	node  *servertest.Node
	line  *line
	ruby  *ruby
	dir   string

	mu     sync.Mutex
	cancel context.CancelFunc
	ended  chan error
}

// newLab makes a fleet with a plan. The function does not start the agent.
func newLab(t *testing.T, script func(p *puppet) tutti.Result) *lab {
	t.Helper()
	f := servertest.Start(t)
	l := &lab{t: t, fleet: f, node: f.Join("db-01"), ruby: newRuby(t, script)}
	f.Push(onePlan)
	l.line = newLine(t, l.node)
	// Sockets need short paths.
	dir, err := os.MkdirTemp("", "a")
	if err != nil {
		t.Fatal(err)
	}
	l.dir = dir
	t.Cleanup(func() {
		l.kill()
		l.ruby.mu.Lock()
		procs := l.ruby.procs
		l.ruby.mu.Unlock()
		for _, p := range procs {
			p.once.Do(func() { close(p.killed) })
			<-p.gone
		}
		_ = os.RemoveAll(dir)
	})
	return l
}

// The method `start` starts an agent. If an agent is running, the method kills this agent first.
func (l *lab) start(change ...func(*agent.Options)) {
	l.t.Helper()
	l.kill()
	opts := agent.Options{
		Dir: l.dir, Node: "db-01", Bus: l.line, Runner: l.ruby, Signers: l.fleet.Identity.Signers(),
		Logger: slog.New(slog.NewTextHandler(l.t.Output(), nil)), Version: "test", Patience: hang,
	}
	for _, c := range change {
		c(&opts)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- agent.New(opts).Run(ctx) }()
	l.mu.Lock()
	l.cancel, l.ended = cancel, ended
	l.mu.Unlock()
}

// The method `kill` ends the agent at once. Its Puppet continues.
func (l *lab) kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.cancel == nil {
		return
	}
	l.cancel()
	if err := <-l.ended; err != nil && !errors.Is(err, context.Canceled) {
		l.t.Errorf("the agent ended with %v", err)
	}
	l.cancel = nil
}

// view returns the node as the server lists it.
func (l *lab) view() api.NodeView {
	l.t.Helper()
	nodes, err := l.fleet.ListNodes(servertest.Operator())
	if err != nil || len(nodes) != 1 {
		l.t.Fatal(nodes, err)
	}
	return nodes[0]
}

// job starts the plan.
func (l *lab) job() tutti.JobID {
	l.t.Helper()
	return l.fleet.Start("deploy", tutti.ModeApply)
}

// The method `end` waits for a job's end and returns the result of its last run.
func (l *lab) end(job tutti.JobID) tutti.Result {
	l.t.Helper()
	var out tutti.Result
	l.watch(job, func(e tutti.Event) bool {
		if b, ok := e.Body.(*tutti.RunFinished); ok {
			out = b.Result
		}
		return false
	})
	return out
}

var errSeen = errors.New("seen")

// The method `watch` follows a job until it ends, or until the argument `until` returns true for an
// event.
func (l *lab) watch(job tutti.JobID, until func(tutti.Event) bool) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), hang)
	defer cancel()
	err := l.fleet.WatchJob(ctx, api.WatchJob{Job: job, Follow: true}, func(w api.Watched) error {
		if w.Event != nil && until(*w.Event) {
			return errSeen
		}
		return nil
	})
	if err != nil && !errors.Is(err, errSeen) {
		l.t.Fatal(err)
	}
}

// The method `until` waits for an event of this kind.
func (l *lab) until(job tutti.JobID, kind string) tutti.Event {
	l.t.Helper()
	var out tutti.Event
	l.watch(job, func(e tutti.Event) bool { out = e; return e.Body.Kind() == kind })
	if out.Body.Kind() != kind {
		l.t.Fatalf("the job ended without %s", kind)
	}
	return out
}

// runDir is the directory of a run.
func (l *lab) runDir(run tutti.RunID) string { return filepath.Join(l.dir, "runs", string(run)) }

// put writes a file in a run's directory.
func (l *lab) put(run tutti.RunID, name string, content any) {
	l.t.Helper()
	if err := os.MkdirAll(l.runDir(run), 0o700); err != nil {
		l.t.Fatal(err)
	}
	raw, ok := content.([]byte)
	if !ok {
		var err error
		if raw, err = json.Marshal(content); err != nil {
			l.t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(l.runDir(run), name), raw, 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// record returns the server's record of a run.
func (l *lab) record(run tutti.RunID) tutti.Record {
	l.t.Helper()
	r, err := l.fleet.RunRecord(servertest.Operator(), run)
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// The function `told` returns a logger that closes the channel `seen` at the first message with
// this beginning.
func told(to *slog.Logger, begins string, seen chan struct{}) *slog.Logger {
	return slog.New(&teller{Handler: to.Handler(), begins: begins, seen: seen, once: &sync.Once{}})
}

type teller struct {
	slog.Handler
	begins string
	seen   chan struct{}
	once   *sync.Once
}

func (h *teller) Handle(ctx context.Context, r slog.Record) error {
	if strings.HasPrefix(r.Message, h.begins) {
		h.once.Do(func() { close(h.seen) })
	}
	return h.Handler.Handle(ctx, r)
}

func (h *teller) WithAttrs(attrs []slog.Attr) slog.Handler {
	next := *h
	next.Handler = h.Handler.WithAttrs(attrs)
	return &next
}
