package converge_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// tester has the methods that testing and rapid have in common.
type tester interface {
	Helper()
	Fatalf(format string, args ...any)
}

// sim is a fleet of simulated nodes, with the real folds and decisions.
type sim struct {
	t     tester
	now   time.Time
	since time.Time // when the server began to serve
	ids   int

	decided uint64 // the last event at the last decision that had no result

	engine   *engine.State
	data     *data.State
	converge *converge.State
	log      []tutti.Event
	cuts     []int // lengths of the log at which the log may end

	code      tutti.Digest
	pushed    tutti.CodePushed                              // the push of `code`
	nodes     map[tutti.NodeName]*manifest                  // the nodes in the current code
	manifests map[tutti.Digest]map[tutti.NodeName]*manifest // by code
	memory    map[tutti.RunID]*process                      // what the nodes remember of their runs
	late      []func()                                      // messages that will arrive (again) later

	environment func(tutti.NodeName) string // the environment of a node; nil: production
	branches    map[string]tutti.CodePushed // the last push of each other environment

	order    []converge.Order
	serial   []converge.Serial
	tells    bool          // the agents report their facts after a run
	mute     bool          // no report arrives
	delay    time.Duration // how long after a run the report arrives
	changes  int           // resources that a run changes
	clock    tutti.Clock   // the agent's clock in the results of our runs
	facts    map[tutti.NodeName]string
	afterEnd func(tutti.NodeName) // called when a run of the node has ended
	owes     func(*tutti.Result)  // adds to each good result the refreshes that the run has left out
	disabled bool                 // no node may run
	gone     map[tutti.NodeName]bool
	puppet   string
	program  tutti.Program
	paused   tutti.NodeName
	hold     bool
	compiles int
	inFlight int
	reaction *tutti.Reaction
	onWanted func(*tutti.RunWanted)     // called with each run.wanted event before the event is folded
	compiled func(*tutti.CatalogReport) // changes the message of a compile at its gate
	behind   func(tutti.NodeName) bool  // whether PuppetDB lacks what a compile of the node collects
	dies     func() bool                // whether the server dies now, in the middle of its decision
}

func newSim(t tester, nodes map[tutti.NodeName]*manifest) *sim {
	s := emptySim(t)
	for _, n := range sortedKeys(nodes) {
		s.append(&tutti.NodeEnrolled{Node: n})
	}
	s.push("one", nodes)
	return s
}

func emptySim(t tester) *sim {
	s := &sim{
		t: t, now: epoch, since: epoch, manifests: map[tutti.Digest]map[tutti.NodeName]*manifest{},
		memory: map[tutti.RunID]*process{}, gone: map[tutti.NodeName]bool{}, facts: map[tutti.NodeName]string{}, changes: 1,
	}
	s.fold()
	s.since = epoch.Add(-48 * time.Hour)
	return s
}

// The method `fold` simulates a start of the server, which folds the whole log.
func (s *sim) fold() {
	s.engine, s.data = engine.NewState(), data.NewState()
	s.converge = converge.New(s.engine, s.data)
	s.since = s.now
	for _, e := range s.log {
		s.apply(e)
	}
}

func (s *sim) apply(e tutti.Event) {
	s.engine.Apply(e)
	s.data.Apply(e)
	s.converge.Apply(e)
}

// The method `from` returns a server whose log contains only the first events of another server's log. The nodes of
// the returned server remember what they did.
func (s *sim) from(end int) *sim {
	out := *s
	out.log, out.cuts, out.late = slices.Clone(s.log[:end]), nil, nil
	out.memory = map[tutti.RunID]*process{}
	for id, p := range s.memory {
		again := *p
		again.published = 0
		out.memory[id] = &again
	}
	out.now = s.log[end-1].At
	out.fold()
	return &out
}

func (s *sim) names() []tutti.NodeName { return sortedKeys(s.nodes) }

// The method `push` pushes code with these manifests.
func (s *sim) push(code string, nodes map[tutti.NodeName]*manifest) {
	s.code, s.nodes = tutti.DigestOf([]byte(code)), nodes
	s.manifests[s.code] = nodes
	s.pushed = tutti.CodePushed{Environment: "production", Code: s.code}
	s.append(&s.pushed)
}

func (s *sim) append(b tutti.Body) {
	e := tutti.Event{Seq: uint64(len(s.log) + 1), At: s.now, By: "operator:ada", Body: b}
	if set, ok := b.(*tutti.ValueSet); ok && set.Owner != "" {
		e.By = "node:" + string(set.Owner)
	}
	s.log = append(s.log, e)
	s.apply(e)
}

// The method `cut` records that the log may end here.
func (s *sim) cut() { s.cuts = append(s.cuts, len(s.log)) }

func (s *sim) view() converge.View {
	return converge.View{
		Now: s.now, Since: s.since, Silence: 24 * time.Hour, Order: s.order, Serial: s.serial, Compiles: s.compiles, InFlight: s.inFlight, Hold: s.hold,
		Seen: func(n tutti.NodeName) time.Time {
			if s.gone[n] {
				return s.now.Add(-48 * time.Hour)
			}
			return s.now
		},
		Has: func(n tutti.NodeName) converge.Has {
			has := converge.Has{Puppet: s.puppet, Program: s.program, TellsFacts: s.tells}
			if s.program != tutti.ProgramAgent {
				has.Environment = "production"
			}
			if s.environment != nil {
				has.Environment = s.environment(n)
			}
			return has
		},
		Paused: func(n tutti.NodeName) string {
			if n == s.paused {
				return "paused: somebody works on it"
			}
			return ""
		},
		Member:   func(target string, n tutti.NodeName) bool { return target == "" || target == string(n) },
		Reaction: s.reaction, Environment: "production", Decided: s.decided,
	}
}

// The method `begin` starts a converge job.
func (s *sim) begin(mode tutti.Mode, spec tutti.ConvergeStep) tutti.JobID {
	id := s.startJob(mode, spec)
	s.settle()
	return id
}

func (s *sim) startJob(mode tutti.Mode, spec tutti.ConvergeStep) tutti.JobID {
	codes := map[string]tutti.Digest{"production": s.code}
	for environment, pushed := range s.branches {
		codes[environment] = pushed.Code
	}
	return s.startJobOf(codes, mode, spec, "")
}

func (s *sim) startJobOf(codes map[string]tutti.Digest, mode tutti.Mode, spec tutti.ConvergeStep, cause string) tutti.JobID {
	id := s.engine.NextJob("converge")
	others := maps.Clone(codes)
	delete(others, "production")
	s.append(&tutti.JobStarted{
		Job: id, Mode: mode, Env: "production", Code: codes["production"], Codes: others, Cause: cause,
		Plan: tutti.Plan{Name: "converge", Steps: []tutti.Step{{Name: "converge", Timeout: time.Hour, Converge: &spec}}},
	})
	s.cut()
	return id
}

// settle appends the decided events until nothing is left to decide, as the server does
// after each batch.
func (s *sim) settle() {
	s.t.Helper()
	s.cut()
	for range 1000 {
		if r := s.converge.React(s.view()); r != nil {
			s.startJobOf(r.Codes, tutti.ModeApply, r.Step, r.Cause)
		}
		bodies := s.engine.Decide(engine.View{
			Now: s.now, Since: s.since, Silence: 24 * time.Hour, Seen: func(tutti.NodeName) time.Time { return s.now },
		})
		s.emit(bodies)
		more := s.converge.Decide(s.view())
		s.emit(more)
		if len(bodies)+len(more) == 0 {
			s.decided = s.data.Seq()
			return
		}
	}
	s.t.Fatalf("decides without end:\n%s", s.tail())
}

func (s *sim) emit(bodies []tutti.Body) {
	for _, b := range bodies {
		switch b := b.(type) {
		case *tutti.RunWanted:
			s.ids++
			b.Order.Run = tutti.RunID(fmt.Sprintf("00000000-0000-0000-0000-%012d", s.ids))
			if s.onWanted != nil {
				s.onWanted(b)
			}
		case *tutti.RunGated:
			r := s.engine.Runs[b.Run]
			if b.Verdict == tutti.GateGo && r.Mode == tutti.ModeApply {
				s.exports(r, s.data.Handed(r.Job, r.Node), false)
			}
		}
		s.append(b)
		if _, proved := b.(*tutti.RunProved); !proved {
			s.cut()
			if s.dies != nil && s.dies() { // the remaining events of the decision are never written
				s.fold()
				return
			}
		}
	}
}

func (s *sim) exports(r *engine.Run, exports []tutti.Export, overlay bool) {
	s.append(&tutti.ExportsSet{Node: r.Node, Run: r.Run, Job: r.Job, Overlay: overlay, Count: len(exports), Exports: exports})
}

// The method `run` lets the nodes act, in the order that the function `pick` chooses, until the job has its verdict.
func (s *sim) run(id tutti.JobID, pick func(n int) int) *engine.Job {
	s.t.Helper()
	for range 5000 {
		if j := s.engine.Jobs[id]; j.Ended() {
			return j
		}
		s.step(pick)
		s.settle()
	}
	s.t.Fatalf("job %s has no verdict after %s:\n%s", id, s.now.Sub(epoch), s.tail())
	return nil
}

// The method `step` lets one node act. If no node can act, time passes.
func (s *sim) step(pick func(n int) int) {
	actions := s.actions()
	if len(actions) == 0 {
		s.now = s.now.Add(10 * time.Second)
		return
	}
	s.now = s.now.Add(time.Second)
	actions[pick(len(actions))]()
}

// The method `all` begins a converge job and runs it to its end.
func (s *sim) all(pick func(n int) int) *engine.Job {
	s.t.Helper()
	return s.run(s.begin(tutti.ModeApply, tutti.ConvergeStep{}), pick)
}

// The function `done` returns how often each node ran and compiled in a job. The function leaves out nodes that
// neither ran nor compiled.
func done(j *engine.Job) map[tutti.NodeName]string {
	out := map[tutti.NodeName]string{}
	for _, n := range j.Steps[0].Nodes {
		for _, r := range n.Runs {
			switch {
			case r.Passed():
				out[n.Node] += "run "
			case r.Proved:
				out[n.Node] += "proved "
			case r.Result != nil && r.Result.Stopped:
				out[n.Node] += "stopped "
			default:
				out[n.Node] += string(r.Outcome()) + " "
			}
		}
	}
	return out
}

// The method `write` acts as an operator who sets a value.
func (s *sim) write(key, value string) {
	raw := fmt.Appendf(nil, "%q", value)
	if v, ok := s.data.Value(key); !ok || string(v.Value) != string(raw) { // as the server does
		s.append(&tutti.ValueSet{Key: key, Value: raw})
	}
}

func (s *sim) tail() string {
	out := ""
	for _, e := range s.log[max(0, len(s.log)-80):] {
		out += fmt.Sprintf("%s %s\n", e.At.Sub(epoch), s.describe(e.Body))
	}
	return out
}

func (s *sim) describe(b tutti.Body) string {
	run := func(id tutti.RunID) string {
		if r := s.engine.Runs[id]; r != nil {
			return fmt.Sprintf("%s#%d", r.Node, r.Attempt)
		}
		return string(id)
	}
	switch b := b.(type) {
	case *tutti.RunWanted:
		return fmt.Sprintf("wanted %s#%d proof=%t", b.Order.Node, b.Order.Attempt, b.Order.Proof)
	case *tutti.RunGated:
		return fmt.Sprintf("gated %s %s %s", run(b.Run), b.Verdict, b.Reason)
	case *tutti.RunFinished:
		return fmt.Sprintf("finished %s %s stopped=%t %s", run(b.Result.Run), b.Result.Outcome, b.Result.Stopped, b.Result.Message)
	case *tutti.RunCompiled:
		return "compiled " + run(b.Run)
	case *tutti.RunClaimed:
		return "claimed " + run(b.Run)
	case *tutti.RunLost:
		return "lost " + run(b.Run)
	case *tutti.ValueSet:
		return fmt.Sprintf("set %s %s by %q", b.Key, b.Value, b.Owner)
	case *tutti.ExportsSet:
		var refs []string
		for _, e := range b.Exports {
			refs = append(refs, e.Ref())
		}
		return fmt.Sprintf("exports of %s overlay=%t %v", b.Node, b.Overlay, refs)
	case *tutti.ConvergeFinished:
		return "verdict " + string(b.Verdict) + " " + b.Message
	}
	return b.Kind() + " " + b.ID()
}

func sortedKeys[K ~string, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

func first(int) int { return 0 }

// Package rapid needs long to find the smallest fleet that fails. The time is short here, because the log of a
// larger fleet is readable, too.
func init() {
	if err := flag.Set("rapid.shrinktime", "2s"); err != nil {
		panic(err)
	}
}
