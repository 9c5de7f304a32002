package agent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
)

// ruby is an agent.Runner whose Puppet processes are functions. Like real processes,
// these functions continue when the agent ends, and the next agent finds them.
type ruby struct {
	t      *testing.T
	script func(p *puppet) tutti.Result // what a Puppet does

	mu        sync.Mutex
	procs     map[string]*puppet // by directory
	starts    map[tutti.RunID]int
	strangers []string
	startErr  error // the error of Start if the process does not begin
	lateErr   error // the error of Start after the process has begun
	adoptErr  error
	leaves    *agent.Refreshes // the events that a process leaves if it does not begin
}

func newRuby(t *testing.T, script func(p *puppet) tutti.Result) *ruby {
	return &ruby{t: t, script: script, procs: map[string]*puppet{}, starts: map[tutti.RunID]int{}}
}

// The method `does` changes what the next Puppet processes do.
func (r *ruby) does(script func(p *puppet) tutti.Result) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script
}

const (
	markerFile  = "marker.json"
	verdictFile = "verdict.json"
	// refreshesFile stands for the events of a run.
	refreshesFile = "refreshes.json"
)

func (r *ruby) Start(dir string, spec agent.Spec) (agent.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := os.Stat(filepath.Join(dir, markerFile)); err == nil {
		r.t.Errorf("run %s is started a second time", spec.Order.Run)
	}
	if err := writeFile(filepath.Join(dir, markerFile), spec); err != nil {
		return nil, err
	}
	if r.startErr != nil {
		if r.leaves != nil {
			return nil, errors.Join(r.startErr, writeFile(filepath.Join(dir, refreshesFile), r.leaves))
		}
		return nil, r.startErr
	}
	r.starts[spec.Order.Run]++
	p := &puppet{t: r.t, dir: dir, spec: spec, killed: make(chan struct{}), gone: make(chan struct{})}
	r.procs[dir] = p
	script := r.script
	go func() {
		defer close(p.gone)
		result := script(p)
		select {
		case <-p.killed: // a killed Puppet leaves no verdict
			return
		default:
		}
		result.Run = spec.Order.Run
		if err := writeFile(filepath.Join(dir, verdictFile), result); err != nil {
			r.t.Error(err)
		}
	}()
	if r.lateErr != nil {
		return nil, r.lateErr
	}
	return p, nil
}

func (r *ruby) Spec(dir string) (agent.Spec, error) {
	var spec agent.Spec
	raw, err := os.ReadFile(filepath.Join(dir, markerFile))
	if err == nil {
		err = json.Unmarshal(raw, &spec)
	}
	return spec, err
}

func (r *ruby) Adopt(dir string) (agent.Process, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.adoptErr != nil {
		return nil, r.adoptErr
	}
	p := r.procs[dir]
	if p == nil {
		return nil, nil
	}
	select {
	case <-p.gone:
		return nil, nil
	default:
		return p, nil
	}
}

func (r *ruby) Follow(ctx context.Context, _ string, run tutti.RunID, yield func([]tutti.Live)) {
	yield([]tutti.Live{{Run: run, Phase: "compile"}})
	<-ctx.Done()
}

func (r *ruby) Judge(dir string, run tutti.RunID) tutti.Result {
	var out tutti.Result
	raw, err := os.ReadFile(filepath.Join(dir, verdictFile))
	if errors.Is(err, fs.ErrNotExist) {
		return tutti.Result{Run: run, Outcome: tutti.Interrupted, Phase: "apply"}
	}
	if err != nil || json.Unmarshal(raw, &out) != nil {
		return tutti.Result{Run: run, Outcome: tutti.Failed, Reason: tutti.BecauseMachinery}
	}
	return out
}

func (r *ruby) Refreshes(dir string) (agent.Refreshes, error) {
	var out agent.Refreshes
	raw, err := os.ReadFile(filepath.Join(dir, refreshesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return out, nil
	}
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	return out, err
}

func (r *ruby) Strangers() ([]string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.strangers, nil
}

func (r *ruby) started() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, times := range r.starts {
		n += times
	}
	return n
}

func writeFile(path string, v any) error {
	raw, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return os.WriteFile(path, raw, 0o600)
}

// puppet is one of ruby's processes.
type puppet struct {
	t      *testing.T
	dir    string
	spec   agent.Spec
	once   sync.Once
	killed chan struct{}
	gone   chan struct{}
}

func (p *puppet) Wait(ctx context.Context) error {
	select {
	case <-p.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (p *puppet) Kill(ctx context.Context) error {
	p.once.Do(func() { close(p.killed) })
	return p.Wait(ctx)
}

// reply is any answer on the socket.
type reply struct {
	OK       bool                       `json:"ok"`
	Code     tutti.Code                 `json:"code"`
	Error    string                     `json:"error"`
	Mode     tutti.Mode                 `json:"mode"`
	Found    bool                       `json:"found"`
	Value    json.RawMessage            `json:"value"`
	Secret   any                        `json:"sensitive"` // true for a secret value; for hiera, the keys of the secrets
	Awaits   any                        `json:"awaits"`
	Closed   map[string]string          `json:"closed"`
	Outdated bool                       `json:"outdated"`
	Local    bool                       `json:"local"`
	Degraded bool                       `json:"degraded"`
	Data     map[string]json.RawMessage `json:"data"`
	Exports  []tutti.Export             `json:"exports"`
	Groups   []string                   `json:"groups"`
	Answer   json.RawMessage            `json:"answer"`
	Digest   tutti.Digest               `json:"digest"`
	Digests  map[string]tutti.Digest    `json:"digests"`
	Seq      uint64                     `json:"seq"`
	Verdict  tutti.GateVerdict          `json:"verdict"`
	Holds    bool                       `json:"holds"`
	Reason   string                     `json:"reason"`
	Released bool                       `json:"released"`
	Lags     []tutti.Lag                `json:"lags"`
}

type ask = map[string]any

// dial connects to the run's socket. The method tries again until somebody kills the
// Puppet.
func (p *puppet) dial() net.Conn {
	for {
		conn, err := net.Dial("unix", p.spec.Socket)
		if err == nil {
			return conn
		}
		select {
		case <-p.killed:
			return nil
		case <-time.After(5 * time.Millisecond): // the agent may be restarting
		}
	}
}

// The method `report` leaves a report with this content.
func (p *puppet) report(content []byte) {
	_ = os.WriteFile(filepath.Join(p.dir, "report.json"), content, 0o600) // a test that needs the report fails without it
}

func (p *puppet) hello() ask {
	return ask{"op": "hello", "run": p.spec.Order.Run, "protocol": 1, "module": "1.0", "puppet": "8.10.0", "certname": p.spec.Node, "pid": 1, "opens": true}
}

// The method `say` sends a hello and one request on a new connection. If the agent goes away in the
// meantime, say tries again, as the module does.
func (p *puppet) say(req ask) reply {
	for {
		conn := p.dial()
		if conn == nil {
			return reply{Error: "killed"}
		}
		lines := bufio.NewScanner(conn)
		lines.Buffer(nil, 1<<20)
		if exchange(conn, lines, p.hello()).OK {
			if r := exchange(conn, lines, req); r.OK || r.Code != "" {
				conn.Close()
				return r
			}
		}
		conn.Close()
	}
}

// exchange sends a request as a line, and reads the line of the answer. The function returns an
// empty reply if the connection has ended.
func exchange(conn net.Conn, lines *bufio.Scanner, req ask) reply {
	raw, err := json.Marshal(req)
	if err != nil {
		return reply{Error: err.Error()}
	}
	if _, err := conn.Write(append(raw, '\n')); err != nil || !lines.Scan() {
		return reply{}
	}
	var r reply
	if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
		return reply{Error: err.Error()}
	}
	return r
}

// The function `changed` returns the result of a successful run.
func changed() tutti.Result { return tutti.Result{Outcome: tutti.Changed, Phase: "report"} }

// The function `applies` does the steps of an ordinary run.
func applies(p *puppet) tutti.Result {
	p.say(ask{"op": "hiera"})
	if r := p.say(ask{"op": "gate", "values": []string{"db/x"}, "catalog": ask{"digest": tutti.DigestOf([]byte("catalog"))}}); r.Verdict != tutti.GateGo {
		return tutti.Result{Stopped: true, Message: r.Reason}
	}
	return changed()
}
