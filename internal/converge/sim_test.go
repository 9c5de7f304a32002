package converge_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// answers are what a compile was told: by key the value (absent: not there), by
// type the exports.
type answers struct {
	values  map[string]string
	exports map[string][]string
}

// catalog is what a compile makes of the answers.
type catalog struct {
	exports map[string][]string // type → titles
	values  map[string]string   // published when applied
	fails   bool                // when applied
	waits   string              // a key without which there is no catalog
	extra   string              // the rest of it
}

// manifest is a node's code: what it asks, and what it makes of it.
type manifest struct {
	values  []string
	types   []string
	compile func(answers) catalog
}

// sim is a fleet of simulated nodes, with the real folds and decisions.
type sim struct {
	t        testing.TB
	seq      uint64
	now      time.Time
	ids      int
	engine   *engine.State
	data     *data.State
	converge *converge.State
	code     tutti.Digest
	nodes    map[tutti.NodeName]*manifest
	catalogs map[tutti.RunID]catalog
	order    []converge.Order
	gone     map[tutti.NodeName]bool
	log      []string
}

func newSim(t testing.TB, nodes map[tutti.NodeName]*manifest) *sim {
	s := &sim{
		t: t, now: epoch, engine: engine.NewState(), data: data.NewState(), nodes: nodes,
		catalogs: map[tutti.RunID]catalog{}, gone: map[tutti.NodeName]bool{},
	}
	s.converge = converge.New(s.engine, s.data)
	for _, n := range s.names() {
		s.append(&tutti.NodeEnrolled{Node: n})
	}
	s.push("one")
	return s
}

func (s *sim) names() []tutti.NodeName {
	var out []tutti.NodeName
	for n := range s.nodes {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

func (s *sim) push(code string) {
	s.code = tutti.DigestOf([]byte(code))
	s.append(&tutti.CodePushed{Environment: "production", Code: s.code})
}

func (s *sim) append(b tutti.Body) {
	s.seq++
	e := tutti.Event{Seq: s.seq, At: s.now, Body: b}
	s.engine.Apply(e)
	s.data.Apply(e)
	s.converge.Apply(e)
	s.log = append(s.log, fmt.Sprintf("%s %s", s.now.Sub(epoch), describeBody(s, b)))
}

func describeBody(s *sim, b tutti.Body) string {
	node := func(id tutti.RunID) string {
		if r := s.engine.Runs[id]; r != nil {
			return fmt.Sprintf("%s#%d", r.Node, r.Attempt)
		}
		return string(id)
	}
	switch b := b.(type) {
	case *tutti.RunWanted:
		return fmt.Sprintf("wanted %s proof=%t", b.Order.Node, b.Order.Proof)
	case *tutti.RunGated:
		return fmt.Sprintf("gated %s %s %s", node(b.Run), b.Verdict, b.Reason)
	case *tutti.RunFinished:
		return fmt.Sprintf("finished %s %s %s", node(b.Result.Run), b.Result.Outcome, b.Result.Message)
	case *tutti.RunCompiled:
		return "compiled " + node(b.Run)
	case *tutti.ValueSet:
		return "set " + b.Key + " " + string(b.Value)
	case *tutti.ConvergeFinished:
		return "verdict " + string(b.Verdict) + " " + b.Message
	}
	return b.Kind() + " " + b.ID()
}

func (s *sim) view() converge.View {
	return converge.View{
		Now: s.now, Since: epoch, Silence: time.Hour * 24, Order: s.order,
		Seen:    func(tutti.NodeName) time.Time { return time.Time{} },
		Puppet:  func(tutti.NodeName) string { return "" },
		Paused:  func(tutti.NodeName) string { return "" },
		Members: func(string) []tutti.NodeName { return s.names() },
	}
}

// start begins a converge job.
func (s *sim) start(mode tutti.Mode, spec tutti.ConvergeStep) *engine.Job {
	id := s.engine.NextJob("converge")
	s.append(&tutti.JobStarted{
		Job: id, Mode: mode, Env: "production", Code: s.code,
		Plan: tutti.Plan{Name: "converge", Steps: []tutti.Step{{Name: "converge", Timeout: time.Hour, Converge: &spec}}},
	})
	s.settle()
	return s.engine.Jobs[id]
}

// settle appends what is decided until nothing is.
func (s *sim) settle() {
	s.t.Helper()
	for range 1000 {
		bodies := s.converge.Decide(s.view())
		bodies = append(bodies, s.engine.Decide(engine.View{
			Now: s.now, Since: epoch, Silence: 24 * time.Hour, Seen: func(tutti.NodeName) time.Time { return time.Time{} },
		})...)
		if len(bodies) == 0 {
			return
		}
		for _, b := range bodies {
			if w, ok := b.(*tutti.RunWanted); ok {
				s.ids++
				w.Order.Run = tutti.RunID(fmt.Sprintf("00000000-0000-0000-0000-%012d", s.ids))
			}
			s.append(b)
			if g, ok := b.(*tutti.RunGated); ok && g.Verdict == tutti.GateGo {
				s.setExports(s.engine.Runs[g.Run], false)
			}
		}
	}
	s.t.Fatalf("decides without end: %v", s.log[len(s.log)-20:])
}

func (s *sim) setExports(r *engine.Run, overlay bool) {
	var exports []tutti.Export
	for typ, titles := range s.catalogs[r.Run].exports {
		for _, title := range titles {
			exports = append(exports, tutti.Export{Type: typ, Title: title})
		}
	}
	s.append(&tutti.ExportsSet{Node: r.Node, Run: r.Run, Job: r.Job, Overlay: overlay, Count: len(exports), Exports: exports})
}

// actions are what the nodes can do now, by name.
func (s *sim) actions() []func() {
	var out []func()
	for _, n := range s.names() {
		r := s.engine.Runs[s.engine.Active[n]]
		if r == nil || s.gone[n] {
			continue
		}
		switch {
		case r.ClaimedAt.IsZero():
			out = append(out, func() { s.append(&tutti.RunClaimed{Run: r.Run, Node: n}) })
		case r.Compiled == nil:
			out = append(out, func() { s.compile(r) })
		case r.Gate == tutti.GateStop:
			out = append(out, func() {
				s.append(&tutti.RunFinished{Result: tutti.Result{Run: r.Run, Stopped: true}})
			})
		case r.Gate == tutti.GateGo:
			out = append(out, func() { s.apply(r) })
		}
	}
	return out
}

// compile asks, and hands over.
func (s *sim) compile(r *engine.Run) {
	m := s.nodes[r.Node]
	asker := data.Asker{Node: r.Node, Job: r.Job, Overlay: true}
	got := answers{values: map[string]string{}, exports: map[string][]string{}}
	asked := &tutti.Asked{}
	ask := func(q tutti.Query) data.Answer {
		a := s.data.Answer(q, asker)
		asked.Reads = append(asked.Reads, tutti.Read{Query: q, Found: a.Found, Digest: a.Digest})
		return a
	}
	for _, key := range m.values {
		if a := ask(tutti.Query{Kind: tutti.QueryValue, Key: key}); a.Found {
			var v string
			_ = json.Unmarshal(a.Value, &v)
			got.values[key] = v
		}
	}
	for _, typ := range m.types {
		for _, e := range ask(tutti.Query{Kind: tutti.QueryCollect, Type: typ}).Exports {
			got.exports[typ] = append(got.exports[typ], e.Title)
		}
		slices.Sort(got.exports[typ])
	}
	c := m.compile(got)
	if c.waits != "" {
		s.append(&tutti.RunAsked{Run: r.Run, Reads: asked})
		s.append(&tutti.RunFinished{Result: tutti.Result{Run: r.Run, Outcome: tutti.Waiting, Message: "no value " + c.waits,
			Waits: []tutti.Wait{{Query: tutti.Query{Kind: tutti.QueryValue, Key: c.waits}}}}})
		return
	}
	s.catalogs[r.Run] = c
	s.setExports(r, true)
	text := fmt.Sprint(c.exports, c.values, c.extra, s.nodeCode(r.Node))
	same := tutti.DigestOf([]byte("same"))
	var keys []string
	for k := range c.values {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	s.append(&tutti.RunCompiled{Run: r.Run, Reads: asked, Compiled: tutti.Compiled{
		Catalog: tutti.DigestOf([]byte(text)), Sources: same, Lib: same, Values: keys,
	}})
}

func (s *sim) nodeCode(tutti.NodeName) string { return "" }

func (s *sim) apply(r *engine.Run) {
	c := s.catalogs[r.Run]
	result := tutti.Result{Run: r.Run, Outcome: tutti.Changed}
	if c.fails {
		result.Outcome, result.Reason = tutti.Failed, tutti.BecauseResources
	} else if r.Mode == tutti.ModeApply {
		for _, key := range sortedKeys(c.values) {
			raw, _ := json.Marshal(c.values[key])
			if v, ok := s.data.Value(key); !ok || string(v.Value) != string(raw) {
				s.append(&tutti.ValueSet{Key: key, Value: raw, Owner: r.Node, Run: r.Run, Job: r.Job})
			}
		}
	}
	s.append(&tutti.RunFinished{Result: result})
}

func sortedKeys(m map[string]string) []string {
	var out []string
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}

// run lets the nodes act, in the order that pick chooses, until the job has its
// verdict.
func (s *sim) run(j *engine.Job, pick func(n int) int) {
	s.t.Helper()
	for range 5000 {
		if j.Ended() {
			return
		}
		actions := s.actions()
		if len(actions) == 0 {
			s.now = s.now.Add(10 * time.Second)
		} else {
			s.now = s.now.Add(time.Second)
			actions[pick(len(actions))]()
		}
		s.settle()
	}
	s.t.Fatalf("job %s has no verdict after %s:\n%s", j.ID, s.now.Sub(epoch), tail(s.log))
}

func tail(log []string) string {
	out := ""
	for _, l := range log[max(0, len(log)-60):] {
		out += l + "\n"
	}
	return out
}

func first(int) int { return 0 }
