package converge_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/engine"
)

// factsOf returns what a node's agent reports about facts after the node's last run.
func (s *sim) factsOf(n tutti.NodeName) tutti.FactsSeen {
	out := tutti.FactsSeen{Facts: tutti.DigestOf([]byte(s.facts[n]))}
	last := s.engine.Last(n).Claimed
	if last == nil {
		return out
	}
	out.Run = last.Run
	if p := s.memory[last.Run]; p != nil && p.got.fact != s.facts[n] {
		out.Changed = []string{"ssh"}
	}
	return out
}

// The function `hosts` returns nodes that install a package. The package makes a key, and the key is a
// fact. Each node exports its key and collects the keys of all other nodes.
func hosts(names ...tutti.NodeName) map[tutti.NodeName]*manifest {
	out := map[tutti.NodeName]*manifest{}
	for _, n := range names {
		out[n] = &manifest{
			types: []string{"Sshkey"},
			makes: func(string) string { return "key of " + string(n) },
			compile: func(a answers) catalog {
				c := catalog{extra: fmt.Sprint(a.exports)}
				if a.fact != "" {
					c.exports = map[string][]string{"Sshkey": {a.fact}}
				}
				return c
			},
		}
	}
	return out
}

// TestPackageFactSecondRun: a run installs a package, the package makes a fact, and the fact leads
// to another catalog. One job handles the run, the fact and the new catalog, with events in any
// order.
func TestPackageFactSecondRun(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		names := []tutti.NodeName{"a", "b", "c"}
		s := newSim(rt, hosts(names...))
		s.tells = true
		j := s.all(pick(d))
		if j.Verdict != tutti.VerdictConverged {
			rt.Fatalf("verdict %s: %s\n%s", j.Verdict, j.Message, s.tail())
		}
		for _, n := range names {
			p := s.memory[s.engine.Last(n).Passed.Run]
			if p.got.fact == "" || len(p.got.exports["Sshkey"]) != len(names)-1 {
				rt.Fatalf("%s is good with fact %q and keys %v\n%s", n, p.got.fact, p.got.exports, s.tail())
			}
			if keys := s.data.Exports(n); len(keys) != 1 {
				rt.Fatalf("%s is good and exports %v\n%s", n, keys, s.tail())
			}
		}
		if again := s.all(first); len(done(again)) > 0 {
			rt.Fatalf("the second: %v\n%s", done(again), s.tail())
		}
	})
}

// After a call of `restless`, a fact of the node is different each time the node collects its facts.
func (s *sim) restless(n tutti.NodeName) {
	count := 0
	s.onWanted = func(b *tutti.RunWanted) {
		count++
		s.facts[n] = fmt.Sprint("at compile ", count)
	}
	s.afterEnd = func(node tutti.NodeName) {
		if node == n {
			count++
			s.facts[n] = fmt.Sprint("at end ", count)
		}
	}
}

func TestFactsThatChange(t *testing.T) {
	uses := func(a answers) catalog { return catalog{extra: a.fact} }
	ignores := func(answers) catalog { return catalog{} }
	once := func(string) string { return "installed" }
	for name, tc := range map[string]struct {
		manifest *manifest
		change   func(s *sim) // if set, a first job runs, then this function is called, then the tested job runs
		silent   bool         // the agent reports no facts
		restless bool
		did      string
		verdict  tutti.Verdict
		message  string
	}{
		"a fact of a run that the catalog uses":    {&manifest{compile: uses, makes: once}, nil, false, false, "run run ", tutti.VerdictConverged, ""},
		"one that it does not use":                 {&manifest{compile: ignores, makes: once}, nil, false, false, "run proved ", tutti.VerdictConverged, ""},
		"an agent that tells nothing":              {&manifest{compile: uses, makes: once}, nil, true, false, "run ", tutti.VerdictConverged, ""},
		"one that never stays, and is not used":    {&manifest{compile: ignores}, nil, false, true, "run proved proved ", tutti.VerdictConverged, "a is as its code says, but its facts keep changing: ssh"},
		"one that never stays, and is used":        {&manifest{compile: uses}, nil, false, true, "run run run ", tutti.VerdictDiverging, "a keeps changing: its facts have changed since its last run: ssh"},
		"somebody has written a fact since":        {&manifest{compile: uses}, func(s *sim) { s.facts["a"] = "role" }, false, false, "run ", tutti.VerdictConverged, ""},
		"somebody has written one that it ignores": {&manifest{compile: ignores}, func(s *sim) { s.facts["a"] = "role" }, false, false, "proved ", tutti.VerdictConverged, ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, map[tutti.NodeName]*manifest{"a": tc.manifest})
			s.tells = !tc.silent
			if tc.restless {
				s.restless("a")
			}
			if tc.change != nil {
				s.all(first)
				tc.change(s)
				for _, act := range s.actions() { // the agent reports the new facts
					act()
				}
			}
			j := s.all(first)
			if diff := cmp.Diff([]string{tc.did, string(tc.verdict), tc.message}, []string{done(j)["a"], string(j.Verdict), j.Message}); diff != "" {
				t.Errorf("-want +got\n%s\n%s", diff, s.tail())
			}
		})
	}
}

// TestNobodyWaitsForEverForFacts: if a connected node does not report its facts, the job waits for the
// report only a minute.
func TestNobodyWaitsForEverForFacts(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.tells = true
	s.mute = true
	j := s.all(first)
	ended := s.engine.Last("a").Passed.EndedAt
	if took := j.EndedAt.Sub(ended); j.Verdict != tutti.VerdictConverged || took < time.Minute || took > 2*time.Minute {
		t.Errorf("%s, %s after the run\n%s", j.Verdict, took, s.tail())
	}
}

// TestAReactionToFacts: when a fact of a node changes, the node runs by itself. If the fact keeps changing,
// the node compiles twice, and then the server leaves the node alone. A job of a person runs the node
// again.
func TestAReactionToFacts(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": {compile: func(a answers) catalog { return catalog{extra: a.fact} }}})
	s.tells = true
	s.push("two", s.nodes)
	s.live(5 * time.Minute)
	before := s.runs()
	s.facts["a"] = "role"
	s.live(5 * time.Minute)
	if diff := cmp.Diff(map[tutti.NodeName]int{"a": 1}, since(before, s.runs())); diff != "" {
		t.Fatalf("-want +runs\n%s\n%s", diff, s.tail())
	}
	s.push("three", map[tutti.NodeName]*manifest{"a": {compile: func(answers) catalog { return catalog{} }}})
	s.live(5 * time.Minute)
	from := len(s.log)
	s.restless("a")
	s.facts["a"] = "begin"
	s.live(24 * time.Hour)
	compiled := 0
	for _, e := range s.log[from:] {
		if _, is := e.Body.(*tutti.RunCompiled); is {
			compiled++
		}
	}
	if why := s.standing("a").Why(); compiled != 2 || why != "its facts keep changing: ssh" {
		t.Errorf("%d compiles, and %q\n%s", compiled, why, s.tail())
	}
	if j := s.all(first); done(j)["a"] != "proved proved " {
		t.Errorf("a person's job: %v\n%s", done(j), s.tail())
	}
}

// TestAFailedNodeWithOtherFacts: a node has failed. When its facts change, it runs again by itself.
func TestAFailedNodeWithOtherFacts(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads()})
	s.tells = true
	broken := &manifest{compile: func(a answers) catalog {
		if a.fact == "" {
			return catalog{fails: tutti.BecauseResources}
		}
		return catalog{}
	}}
	s.push("two", map[tutti.NodeName]*manifest{"a": broken})
	s.live(time.Hour)
	if why := s.standing("a").Why(); !strings.Contains(why, "it broke") {
		t.Fatalf("%q\n%s", why, s.tail())
	}
	s.facts["a"] = "role"
	s.live(5 * time.Minute)
	if why := s.standing("a").Why(); why != "" {
		t.Errorf("it is still %q\n%s", why, s.tail())
	}
}

// TestProve: a person's job compiles every node of its target once. If the compile shows that the catalog
// has changed, the job applies, even if no answer, fact or code has changed.
func TestProve(t *testing.T) {
	hidden := "one" // a part of the catalog that comes from no fact and no answer, but for example from a file
	nodes := map[tutti.NodeName]*manifest{"a": {compile: func(answers) catalog { return catalog{extra: hidden} }}, "b": reads(), "c": reads()}
	s := newSim(t, nodes)
	s.all(first)
	hidden = "two"
	if again := s.all(first); len(done(again)) > 0 {
		t.Fatalf("without: %v", done(again))
	}
	prove := func(spec tutti.ConvergeStep, mode tutti.Mode) *engine.Job {
		spec.Prove = true
		return s.run(s.begin(mode, spec), first)
	}
	if diff := cmp.Diff(map[tutti.NodeName]string{"b": "proved "}, done(prove(tutti.ConvergeStep{Target: "b"}, tutti.ModeApply))); diff != "" {
		t.Errorf("one node: -want +got\n%s", diff)
	}
	j := prove(tutti.ConvergeStep{}, tutti.ModeApply)
	if diff := cmp.Diff(map[tutti.NodeName]string{"a": "run ", "b": "proved ", "c": "proved "}, done(j)); diff != "" || j.Verdict != tutti.VerdictConverged {
		t.Errorf("all: %s: -want +got\n%s\n%s", j.Verdict, diff, s.tail())
	}
	if j := prove(tutti.ConvergeStep{}, tutti.ModeCompile); j.Summary(s.now).Runs != 0 || j.Verdict != tutti.VerdictConverged {
		t.Errorf("--plan: %s, %v\n%s", j.Verdict, done(j), s.tail())
	}
	s.gone["c"] = true
	if j := prove(tutti.ConvergeStep{}, tutti.ModeApply); j.Verdict != tutti.VerdictPartial || j.Message != "c is not connected: a proof was asked for" {
		t.Errorf("%s: %s", j.Verdict, j.Message)
	}
}

// compiledSince returns how many runs have compiled according to the log after its first `from` events.
func (s *sim) compiledSince(from int) (n int) {
	for _, e := range s.log[from:] {
		if _, is := e.Body.(*tutti.RunCompiled); is {
			n++
		}
	}
	return n
}

// tellAll makes all nodes report their facts.
func (s *sim) tellAll() {
	for _, act := range s.actions() {
		act()
	}
	s.settle()
}

// TestNoFactsKeepAFleetBusy: in a reactive fleet, facts of a node keep changing. After a few runs the
// server begins no more runs because of the facts.
func TestNoFactsKeepAFleetBusy(t *testing.T) {
	uses := func(a answers) catalog { return catalog{extra: a.fact} }
	ignores := func(answers) catalog { return catalog{} }
	fails := func(answers) catalog { return catalog{fails: tutti.BecauseResources} }
	for name, tc := range map[string]struct {
		compile func(answers) catalog
		program tutti.Program
		delay   time.Duration // how long after a run the agent reports its facts
		changes int           // number of resources that each run changes
		every   time.Duration // time between two changes of the fact; 0: it changes at each collection
		most    int           // the most compiles that are allowed in six hours
	}{
		"used":                                    {compile: uses, changes: 1, most: 8},
		"used, and told late":                     {compile: uses, changes: 1, delay: 70 * time.Second, most: 8},
		"used by the agent, told late":            {compile: uses, program: tutti.ProgramAgent, changes: 1, delay: 70 * time.Second, most: 8},
		"not used":                                {compile: ignores, most: 3},
		"not used, by the clock":                  {compile: ignores, every: 10 * time.Minute, most: 3},
		"of a node that fails":                    {compile: fails, most: 14},
		"of one that changes something and fails": {compile: fails, changes: 1, most: 14},
	} {
		t.Run(name, func(t *testing.T) {
			s := living(t, map[tutti.NodeName]*manifest{"a": reads()})
			s.by(tc.program)
			s.tells, s.delay, s.changes = true, tc.delay, tc.changes
			if tc.every == 0 {
				s.restless("a")
			}
			s.push("two", map[tutti.NodeName]*manifest{"a": {compile: tc.compile}})
			from := len(s.log)
			for i := range 6 {
				s.live(10 * time.Minute)
				for k := range 5 {
					if tc.every > 0 {
						s.facts["a"] = fmt.Sprint(i, k)
					}
					s.live(10 * time.Minute)
				}
			}
			if n := s.compiledSince(from); n > tc.most {
				t.Errorf("%d compiles in six hours, want at most %d\n%s", n, tc.most, s.tail())
			}
		})
	}
}

// TestOtherFactsAreNotForgotten: a node reports changed facts. Then the node has another run. This run
// has another reason, or does not show whether the node is good. After that, the server must still know
// that the facts have changed.
func TestOtherFactsAreNotForgotten(t *testing.T) {
	uses := map[tutti.NodeName]*manifest{"a": {compile: func(a answers) catalog { return catalog{extra: a.fact} }}}
	ignores := map[tutti.NodeName]*manifest{"a": {compile: func(answers) catalog { return catalog{} }}}
	for name, tc := range map[string]struct {
		nodes map[tutti.NodeName]*manifest
		do    func(s *sim)
	}{
		"told again after a proof by code": {ignores, func(s *sim) {
			s.facts["a"] = "two"
			s.tellAll()
			s.push("two", s.nodes)
			s.facts["a"] = "one" // the fact is the old one again while the node compiles
			s.afterEnd = func(tutti.NodeName) { s.facts["a"] = "two" }
			s.all(first)
			s.tellAll()
		}},
		"told after a noop run": {uses, func(s *sim) {
			s.facts["a"] = "two"
			s.run(s.begin(tutti.ModeNoop, tutti.ConvergeStep{Prove: true}), first)
			s.tellAll()
		}},
		"told after a foreign run through the agent": {uses, func(s *sim) {
			s.by(tutti.ProgramAgent)
			s.now = s.now.Add(time.Minute)
			s.tell("a", s.now.Add(-10*time.Second), others(whole))
			s.now = s.now.Add(time.Minute)
			s.facts["a"] = "two"
			s.tellAll()
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSim(t, tc.nodes)
			s.tells, s.changes = true, 0
			s.facts["a"] = "one"
			if strings.Contains(name, "agent") {
				s.by(tutti.ProgramAgent)
			}
			s.all(first)
			s.tellAll()
			tc.do(s)
			if st := s.standing("a"); st.Need == converge.Nothing {
				t.Errorf("it is good, and has other facts than its run\n%s", s.tail())
			}
		})
	}
}

// TestProofsOfAChain: new code changes nothing on any node. Then each node compiles exactly once. This is
// true for nodes that form a chain and for nodes that do not depend on each other, and also with limits for
// runs and compiles.
func TestProofsOfAChain(t *testing.T) {
	const count = 60
	for name, bound := range map[string]func(s *sim){
		"no bound": func(*sim) {}, "runs at once": func(s *sim) { s.inFlight = 20 }, "compiles at once": func(s *sim) { s.compiles = 10 },
	} {
		for shape, feeds := range map[string]bool{"chain": true, "none": false} {
			t.Run(shape+", "+name, func(t *testing.T) {
				nodes := map[tutti.NodeName]*manifest{}
				for i := range count {
					m := &manifest{compile: func(answers) catalog { return catalog{} }}
					if feeds {
						m.types = []string{fmt.Sprint("Type", i-1)}
						m.compile = func(a answers) catalog {
							return catalog{extra: fmt.Sprint(a.exports), exports: map[string][]string{fmt.Sprint("Type", i): {"x"}}}
						}
					}
					nodes[tutti.NodeName(fmt.Sprintf("n%03d", i))] = m
				}
				s := newSim(t, nodes)
				s.all(first)
				s.push("two", nodes)
				bound(s)
				from := len(s.log)
				if j := s.all(first); j.Verdict != tutti.VerdictConverged || s.compiledSince(from) != count {
					t.Errorf("%s with %d compiles of %d nodes", j.Verdict, s.compiledSince(from), count)
				}
			})
		}
	}
}
