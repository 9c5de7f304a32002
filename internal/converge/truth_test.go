package converge_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
)

// seedDice are numbers that a seed decides: a million fleets need no shrinking.
type seedDice struct{ *rand.Rand }

func (d seedDice) roll(n int, _ string) int {
	if n <= 1 {
		return 0
	}
	return d.IntN(n)
}

// truthFleets is how many fleets TestTruth makes; TRUTH_FLEETS replaces it, TRUTH_SEED the first seed.
const truthFleets = 200

// TestTruth: at each moment in the life of a random fleet, a node that is called good is what a compile of now would
// make of it: the catalog that was applied, the exports and the values that are published.
func TestTruth(t *testing.T) {
	number := func(variable string, without int) int {
		text := os.Getenv(variable)
		if text == "" {
			return without
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		return n
	}
	fleets, seed := number("TRUTH_FLEETS", truthFleets), number("TRUTH_SEED", 1)
	var checks atomic.Int64
	t.Run("fleets", func(t *testing.T) {
		const hands = 4
		for hand := range hands {
			t.Run(strconv.Itoa(hand), func(t *testing.T) {
				t.Parallel()
				for i := hand; i < fleets; i += hands {
					checks.Add(int64(lives(t, uint64(seed+i))))
				}
			})
		}
	})
	t.Logf("%d fleets from seed %d: %d checks", fleets, seed, checks.Load())
	if checks.Load() < int64(fleets) {
		t.Errorf("%d checks in %d fleets: too few nodes were called good for the test to show anything", checks.Load(), fleets)
	}
}

// TestANoopJobMakesNobodyGood: what a noop run reads is not what its node has.
func TestANoopJobMakesNobodyGood(t *testing.T) {
	for _, mode := range []tutti.Mode{tutti.ModeNoop, tutti.ModeCompile} {
		s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x"), "b": reads("x")})
		s.all(first)
		s.set("x", "1")
		id, seen := s.begin(mode, tutti.ConvergeStep{}), 0
		for acts := s.actions(); len(acts) > 0; acts = s.actions() {
			acts[0]()
			s.settle()
			if got := s.standing("a"); got.Need != converge.Apply {
				t.Fatalf("%s: while the job goes on the node needs %s", mode, got.Need)
			}
			if !s.engine.Jobs[id].Ended() && s.engine.Last("a").Claimed.Mode == mode && s.engine.Last("a").Claimed.Ended() {
				seen++
			}
		}
		if seen == 0 {
			t.Errorf("%s: the job ended with the node's run: this test sees nothing", mode)
		}
	}
}

// lives lets one fleet live and returns how often a node that was called good was looked at.
func lives(t *testing.T, seed uint64) (checks int) {
	d := seedDice{rand.New(rand.NewPCG(seed, 2))}
	s := newSim(t, acyclic(d, kinds{nodes: 6}))
	s.writeAll(operators(d))
	applied := map[tutti.NodeName]string{}
	s.afterEnd = func(n tutti.NodeName) {
		r := s.engine.Last(n).Applied
		if r == nil || !r.Passed() || r.Result == nil || r.Proved {
			return
		}
		delete(applied, n)
		if r.Result.Outcome.Good() {
			applied[n] = fmt.Sprint(s.memory[r.Run].catalog)
		}
	}
	look := func(did string) {
		for _, n := range s.names() {
			if s.engine.Active[n] != "" || s.standing(n).Need != converge.Nothing {
				continue
			}
			checks++
			c := s.nodes[n].compile(s.asks(s.nodes[n], data.Asker{Node: n}).got)
			if got := fmt.Sprint(c); got != applied[n] || c.waits != "" {
				t.Fatalf("seed %d, after %s: %s is called good; it has %q, and a run would make %q\n%s", seed, did, n, applied[n], got, s.tail())
			}
			if got, want := fmt.Sprint(withoutEmpty(s.exported(n))), fmt.Sprint(withoutEmpty(c.exports)); got != want {
				t.Fatalf("seed %d, after %s: %s is called good; it exports %s, and a run would export %s\n%s", seed, did, n, got, want, s.tail())
			}
			published := s.publishedBy(n)
			if got, want := fmt.Sprint(published), fmt.Sprint(c.values); got != want {
				t.Fatalf("seed %d, after %s: %s is called good; it publishes %s, and a run would publish %s\n%s", seed, did, n, got, want, s.tail())
			}
		}
	}
	for range 4 + d.IntN(4) {
		mode := tutti.ModeApply
		if d.IntN(6) == 0 {
			mode = tutti.ModeNoop
		}
		s.begin(mode, tutti.ConvergeStep{})
		look("a job began")
		for range 200 {
			if d.IntN(12) == 0 {
				look(change(s, d, applied))
			}
			acts := s.actions()
			if len(acts) == 0 {
				break
			}
			acts[d.IntN(len(acts))]()
			look("a message of a node")
			s.settle()
			look("what the server made of it")
		}
		look(change(s, d, applied))
	}
	return checks
}

// change is what people do to a fleet, and what happens to its server.
func change(s *sim, d seedDice, applied map[tutti.NodeName]string) string {
	switch n := nodeNamed(d.IntN(6)); d.IntN(6) {
	case 0, 1, 2:
		key := fmt.Sprintf("op/%d", d.IntN(3))
		s.write(key, string("abc"[d.IntN(3)]))
		return "a write of " + key
	case 3:
		nodes := map[tutti.NodeName]*manifest{}
		for i := range 6 {
			if s.nodes[nodeNamed(i)] == nil {
				continue
			}
			nodes[nodeNamed(i)] = s.nodes[nodeNamed(i)]
			if d.IntN(3) == 0 {
				nodes[nodeNamed(i)] = random(d, i, kinds{nodes: 6})
			}
		}
		s.push(fmt.Sprint("code ", len(s.log)), nodes)
		return "a push"
	case 4:
		s.fold()
		return "a start of the server"
	default:
		if m := s.nodes[n]; m != nil && len(s.nodes) > 1 {
			delete(applied, n)
			s.append(&tutti.NodeRemoved{Node: n, Replaced: true})
			s.append(&tutti.NodeEnrolled{Node: n})
			return "another machine for " + string(n)
		}
		return "nothing"
	}
}

// publishedBy are the values that a node publishes now.
func (s *sim) publishedBy(n tutti.NodeName) map[string]string {
	out := map[string]string{}
	for _, v := range s.data.Values("") {
		if v.Owner == n {
			out[v.Key] = strings.Trim(string(v.Value), `"`)
		}
	}
	return out
}

// exported are the titles that a node exports now, by type.
func (s *sim) exported(n tutti.NodeName) map[string][]string {
	out := map[string][]string{}
	for _, e := range s.data.Exports(n) {
		out[e.Type] = append(out[e.Type], e.Title)
	}
	return out
}
