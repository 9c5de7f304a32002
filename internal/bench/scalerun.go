package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/agent"
)

// These numbers describe the messages and times of a simulated run.
const (
	compileTime = 40 * time.Millisecond
	applyTime   = 60 * time.Millisecond
	longTime    = 12 * time.Second // longTime is the duration of the step that continues during a server restart.

	hieraAsked = 300 // hieraAsked is the number of looked-up hiera keys. Most of these keys are absent.
	hieraThere = 40  // number of looked-up hiera keys that have a value
	exported   = 3
	resources  = 120
	lives      = 4 // number of live messages in one run
	reportSize = 40 << 10
	logSize    = 5 << 10

	longStep = "long"
)

// simulator is the fake Puppet of one node. It uses the run protocol on the real socket, and sleeps
// instead of working.
type simulator struct {
	node tutti.NodeName
	mu   sync.Mutex
	runs map[string]*simulated // by directory
}

// The type `simulated` is one run of a simulator, and also the process of this run.
type simulated struct {
	spec  agent.Spec
	live  chan []tutti.Live
	done  chan struct{}
	begun time.Time
	ended time.Time // the fields `ended` and `err` may be read only after the channel `done` is closed
	err   error
}

func newSimulator(node tutti.NodeName) *simulator {
	return &simulator{node: node, runs: map[string]*simulated{}}
}

func (p *simulator) run(dir string) *simulated {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs[dir]
}

func (p *simulator) Start(dir string, spec agent.Spec) (agent.Process, error) {
	r := &simulated{spec: spec, live: make(chan []tutti.Live, lives), done: make(chan struct{}), begun: time.Now().UTC()}
	p.mu.Lock()
	p.runs[dir] = r
	p.mu.Unlock()
	go func() { // joined by Wait
		defer close(r.done)
		r.err = r.execute(dir)
		r.ended = time.Now().UTC()
	}()
	return r, nil
}

func (p *simulator) Spec(dir string) (agent.Spec, error) {
	if r := p.run(dir); r != nil {
		return r.spec, nil
	}
	return agent.Spec{}, fs.ErrNotExist
}

func (p *simulator) Adopt(string) (agent.Process, error) { return nil, nil }

func (p *simulator) Follow(ctx context.Context, dir string, _ tutti.RunID, yield func([]tutti.Live)) {
	r := p.run(dir)
	for {
		select {
		case all := <-r.live:
			yield(all)
		case <-ctx.Done():
			return
		}
	}
}

func (p *simulator) Judge(dir string, run tutti.RunID) tutti.Result {
	r := p.run(dir)
	out := tutti.Result{
		Run: run, Outcome: tutti.Changed, Phase: "done", StartedAt: r.begun, EndedAt: r.ended,
		Counts: tutti.Counts{Total: resources, Changed: 1},
	}
	switch {
	case errors.Is(r.err, errStopped):
		out.Outcome, out.Stopped = "", true
	case r.err != nil:
		out.Outcome, out.Reason, out.Message = tutti.Failed, tutti.BecauseMachinery, r.err.Error()
	}
	return out
}

func (p *simulator) Refreshes(string) (agent.Refreshes, error) { return agent.Refreshes{}, nil }

func (p *simulator) Strangers() ([]string, error) { return nil, nil }

func (r *simulated) Wait(ctx context.Context) error {
	select {
	case <-r.done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (r *simulated) Kill(context.Context) error { return errors.New("this run has no process to kill") }

var errStopped = errors.New("stopped at the gate")

// The method `execute` plays the phases of a Puppet: compile, gate, apply, report.
func (r *simulated) execute(dir string) error {
	conn, err := net.Dial("unix", r.spec.Socket) //nolint:noctx // a socket of this process
	if err != nil {
		return err
	}
	defer conn.Close()
	s := &runSocket{in: json.NewDecoder(conn), out: json.NewEncoder(conn)}
	run, node := r.spec.Order.Run, r.spec.Node
	s.ask(map[string]any{"op": "hello", "protocol": 1, "run": run, "certname": node, "puppet": "8.10.0", "module": "0.1.0", "pid": 1})
	s.ask(map[string]any{"op": "hiera"})
	s.ask(map[string]any{"op": "value", "key": "shared/release", "at": place(1)})
	time.Sleep(compileTime)
	verdict := s.ask(map[string]any{
		"op": "gate", "catalog": map[string]any{"digest": tutti.DigestOf([]byte(run)), "resources": resources},
		"exports": exportsOf(node), "values": []string{stateKey(node)}, "keys": keysAsked(), "facts_digest": tutti.DigestOf([]byte(node)),
	})
	if s.err == nil && verdict.Verdict != tutti.GateGo {
		return errStopped
	}
	work := applyTime
	if r.spec.Order.Step == longStep {
		work = longTime
	}
	for i := range lives {
		time.Sleep(work / lives)
		r.live <- livesOf(run, i)
	}
	s.ask(map[string]any{"op": "publish", "key": stateKey(node), "value": run})
	if s.err != nil {
		return s.err
	}
	if err := os.WriteFile(filepath.Join(dir, "report.json"), filler(run, reportSize), 0o600); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "log.jsonl"), filler(run, logSize), 0o600)
}

// runSocket sends requests on the run's socket and keeps the first error.
type runSocket struct {
	in  *json.Decoder
	out *json.Encoder
	err error
}

type socketAnswer struct {
	OK      bool              `json:"ok"`
	Error   string            `json:"error"`
	Verdict tutti.GateVerdict `json:"verdict"`
}

func (s *runSocket) ask(request map[string]any) (answer socketAnswer) {
	if s.err == nil {
		s.err = s.out.Encode(request)
	}
	if s.err == nil {
		s.err = s.in.Decode(&answer)
	}
	if s.err == nil && !answer.OK {
		s.err = fmt.Errorf("%s: %s", request["op"], answer.Error)
	}
	return answer
}

func stateKey(node tutti.NodeName) string { return "node/" + string(node) + "/state" }

func place(line int) map[string]any {
	return map[string]any{"resource": "Class[Bench]", "file": "/etc/puppetlabs/code/modules/bench/manifests/init.pp", "line": line}
}

var keysAsked = sync.OnceValue(func() []map[string]any {
	var out []map[string]any
	for i := range hieraAsked {
		out = append(out, map[string]any{"key": hieraKey(i), "found": i < hieraThere, "at": place(i)})
	}
	return out
})

func hieraKey(i int) string { return fmt.Sprintf("bench::part%03d::setting", i) }

func exportsOf(node tutti.NodeName) []map[string]any {
	var out []map[string]any
	for i := range exported {
		out = append(out, map[string]any{
			"type": exportType, "title": fmt.Sprintf("%s:%d", node, i), "tags": []string{"bench"},
			"parameters": map[string]any{"address": "192.0.2.1", "port": 8080 + i, "options": "weight 100"},
		})
	}
	return out
}

func livesOf(run tutti.RunID, from int) []tutti.Live {
	out := make([]tutti.Live, resources/lives)
	for i := range out {
		out[i] = tutti.Live{Run: run, At: time.Now().UTC(), Phase: "apply", Resource: fmt.Sprintf("File[/etc/bench/%d/%d]", from, i), Done: true, Total: resources}
	}
	return out
}

// filler returns content of about the given size. No other run has the same content.
func filler(run tutti.RunID, size int) []byte {
	line := fmt.Appendf(nil, `{"resource":"File[/etc/bench]","run":%q,"changed":false,"evaluation_time":0.001}`+"\n", run)
	return bytes.Repeat(line, size/len(line))
}
