package converge_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/engine"
)

// The type `trouble` contains which disturbances may still happen to a fleet, and how many.
type trouble struct {
	d        dice
	operator map[string]string
	broken   map[tutti.NodeName]int // runs that were lost or interrupted
	changes  int
	starts   int
}

// The method `step` does one to three things before the server decides: a node acts, or a
// disturbance happens. A message from a node may arrive twice: at once, and again much
// later.
func (tr *trouble) step(s *sim) {
	for range 1 + tr.d.roll(3, "batch") {
		s.now = s.now.Add(time.Second)
		switch tr.d.roll(12, "what") {
		case 0:
			tr.change(s)
		case 1:
			tr.crash(s)
		case 2:
			if len(s.late) > 0 {
				s.late[tr.d.roll(len(s.late), "late")]()
			}
		case 3:
			s.now = s.now.Add(time.Duration(tr.d.roll(90, "pause")) * time.Second)
		default:
			tr.act(s)
		}
	}
}

// The method `act` lets one node act.
func (tr *trouble) act(s *sim) {
	actions := s.actions()
	if len(actions) == 0 {
		s.now = s.now.Add(10 * time.Second)
		return
	}
	tr.send(s, actions[tr.d.roll(len(actions), "next")])
}

// The method `send` delivers a message once or twice, and perhaps once more later.
func (tr *trouble) send(s *sim, message func()) {
	message()
	switch tr.d.roll(4, "again") {
	case 0:
		message()
	case 1:
		s.late = append(s.late, message)
	}
}

// The method `change` acts as an operator who changes a value that nodes read.
func (tr *trouble) change(s *sim) {
	if tr.changes == 0 {
		return
	}
	tr.changes--
	key, value := fmt.Sprintf("op/%d", tr.d.roll(3, "key")), fmt.Sprint(tr.d.roll(3, "value"))
	tr.operator[key] = value
	s.write(key, value)
}

// The method `crash` either restarts the server or ends a run. A restarted server folds its
// log again. The server hears of the end of a run at once, later, or never. In one case the
// server believes that the run is lost, but the run goes on.
func (tr *trouble) crash(s *sim) {
	if tr.d.roll(2, "who") == 0 {
		if tr.starts > 0 {
			tr.starts--
			s.fold()
		}
		return
	}
	var active []*engine.Run
	for _, n := range s.names() {
		if r := s.engine.Runs[s.engine.Active[n]]; r != nil && !r.ClaimedAt.IsZero() && tr.broken[n] < 2 {
			active = append(active, r)
		}
	}
	if len(active) == 0 {
		return
	}
	r := active[tr.d.roll(len(active), "run")]
	tr.broken[r.Node]++
	id, p := r.Run, s.memory[r.Run]
	broke := func() { s.finish(tutti.Result{Run: id, Outcome: tutti.Interrupted, Message: "the process is gone"}) }
	good := func() {
		if r := s.engine.Runs[id]; r == nil || !r.Passed() || p == nil || p.published < len(p.catalog.values) {
			broke()
			return
		}
		s.finish(tutti.Result{Run: id, Outcome: tutti.Changed})
	}
	switch tr.d.roll(4, "how") {
	case 0:
		tr.send(s, broke)
	case 1: // the server gives up the run, and never hears of it again
		s.append(&tutti.RunLost{Run: id, Reason: "silent"})
	case 2: // the server gives up the run, but the run goes on and reports later
		s.append(&tutti.RunLost{Run: id, Reason: "silent"})
		if p != nil {
			for range len(p.catalog.values) { // the node sends its values in order, and after them its result
				s.late = append(s.late, func() {
					if p.published < len(p.catalog.values) {
						s.publish(id, p, p.published)
					}
				})
			}
		}
		s.late = append(s.late, good)
	case 3:
		s.append(&tutti.RunLost{Run: id, Reason: "silent"})
		s.late = append(s.late, broke)
	}
}

// The method `run` brings a converge job to its end despite all disturbances.
func (tr *trouble) run(s *sim, id tutti.JobID) *engine.Job {
	for range 5000 {
		if j := s.engine.Jobs[id]; j.Ended() {
			return j
		}
		tr.step(s)
		s.settle()
	}
	s.t.Fatalf("no verdict:\n%s", s.tail())
	return nil
}

// Values that nodes read may change at any moment. Messages may arrive in any order, twice,
// or late. The server and runs may be killed. If the verdict of a job is `converged`, no
// node may need anything. If a message arrives after the job and changes something, the
// next job must notice this.
func TestNoWakeUpIsLostInDisorder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		tr := &trouble{d: d, operator: operators(d), broken: map[tutti.NodeName]int{}, changes: 2, starts: 3}
		s := newSim(rt, acyclic(d, kinds{nodes: 5}))
		s.writeAll(tr.operator)
		s.onWanted = func(w *tutti.RunWanted) { s.mustNeed(w.Order) }
		deaths := 2
		s.dies = func() bool {
			if deaths == 0 || d.roll(8, "dies") > 0 {
				return false
			}
			deaths--
			return true
		}
		j := tr.run(s, s.begin(tutti.ModeApply, tutti.ConvergeStep{}))
		if needy := s.converge.Needy(s.view()); j.Verdict == tutti.VerdictConverged && len(needy) > 0 {
			rt.Fatalf("converged, and %v need something\n%s", needy, s.tail())
		}
		for range s.late { // all messages that have not arrived yet
			s.late[0]()
			s.late = slices.Delete(s.late, 0, 1)
			s.settle()
		}
		if needy := s.converge.Needy(s.view()); len(needy) > 0 || j.Verdict != tutti.VerdictConverged {
			j = s.all(pick(d)) // this job must notice what the late messages have changed
		}
		s.converged(j, tr.operator)
	})
}

// After a loss, the log may end after any batch. A new server that has only this shorter
// log must bring the fleet to the same state.
func TestEveryPrefixComesToTheSameEnd(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		operator := operators(d)
		s := newSim(rt, acyclic(d, kinds{nodes: 5}))
		s.writeAll(operator)
		s.all(pick(d))
		after := slices.DeleteFunc(slices.Clone(s.cuts), func(end int) bool { return end < len(s.nodes)+2+len(operator) })
		again := s.from(after[d.roll(len(after), "prefix")])
		var j *engine.Job
		for _, id := range again.engine.Order {
			again.settle()
			j = again.run(id, pick(d))
		}
		if j == nil {
			j = again.all(pick(d))
		}
		again.converged(j, operator)
	})
}

// A job with the mode compile or noop changes nothing in the fleet, and each node needs the
// same as before. The fleet may be new, a value may have changed, and the server may die. A
// job with the mode apply then converges.
func TestJobsThatChangeNothing(t *testing.T) {
	for _, mode := range []tutti.Mode{tutti.ModeCompile, tutti.ModeNoop} {
		t.Run(string(mode), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				d := rapidDice{rt}
				operator := operators(d)
				s := newSim(rt, acyclic(d, kinds{nodes: 6}))
				s.writeAll(operator)
				if d.roll(2, "good") == 1 {
					s.all(pick(d))
					operator["op/0"] += "x"
					s.write("op/0", operator["op/0"])
				}
				world, needy := s.world(), s.converge.Needy(s.view())
				deaths := d.roll(3, "deaths")
				s.dies = func() bool { deaths--; return deaths > 0 && d.roll(4, "dies") == 0 }
				j := s.run(s.begin(mode, tutti.ConvergeStep{}), pick(d))
				s.dies = nil
				for n, did := range done(j) {
					if mode == tutti.ModeCompile && strings.Contains(did, "run ") {
						rt.Fatalf("%s: %q, want no runs\n%s", n, did, s.tail())
					}
				}
				if diff := cmp.Diff(world.Values, s.world().Values) + cmp.Diff(world.Exports, s.world().Exports); diff != "" {
					rt.Fatalf("it published: -before +after\n%s%s", diff, s.tail())
				}
				if diff := cmp.Diff(needy, s.converge.Needy(s.view())); diff != "" {
					rt.Fatalf("who needs something: -before +after\n%s%s", diff, s.tail())
				}
				s.converged(s.all(pick(d)), operator)
			})
		})
	}
}

// A new fold of the whole log must make the same decisions as the fold that received the
// events one by one.
func TestAFoldDecidesAsTheOneBefore(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		d := rapidDice{rt}
		s := newSim(rt, acyclic(d, kinds{nodes: 5}))
		id := s.begin(tutti.ModeApply, tutti.ConvergeStep{})
		for range 200 {
			if s.engine.Jobs[id].Ended() {
				return
			}
			s.step(pick(d))
			again := *s
			again.fold()
			again.since = s.since
			if diff := cmp.Diff(s.converge.Decide(s.view()), again.converge.Decide(again.view())); diff != "" {
				rt.Fatalf("-one that went on +one that was started anew\n%s%s", diff, s.tail())
			}
			s.settle()
		}
	})
}
