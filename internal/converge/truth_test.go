package converge_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/converge"
	"github.com/tutti-project/tutti/internal/data"
	"github.com/tutti-project/tutti/internal/engine"
)

// seedDice are dice that a seed determines. The dice of rapid are not used, because TestTruth never shrinks a fleet.
type seedDice struct{ *rand.Rand }

func (d seedDice) roll(n int, _ string) int {
	if n <= 1 {
		return 0
	}
	return d.IntN(n)
}

// truthFleets is how many fleets TestTruth makes. TRUTH_FLEETS replaces this number, and TRUTH_SEED
// replaces the first seed.
const truthFleets = 200

// TestTruth checks random fleets at each moment of their lives. If a node counts as good, a compile at this moment
// must result in the catalog, exports and values that the node already has.
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
					// If there are many fleets, only every 25th fleet lives long, to save time.
					checks.Add(int64(lives(t, uint64(seed+i), fleets <= truthFleets || i%25 == 0)))
				}
			})
		}
	})
	t.Logf("%d fleets from seed %d: %d checks", fleets, seed, checks.Load())
	if checks.Load() < int64(fleets) {
		t.Errorf("%d checks in %d fleets: too few nodes were called good for the test to show anything", checks.Load(), fleets)
	}
}

// TestANoopJobMakesNobodyGood: a noop run does not make its node good, because the node
// does not apply the answers that the run reads.
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

// TestAStoppedCompileMakesNobodyGood: a stopped compile and a compile that waits for its turn do not make a node good.
// This is also true while the job goes on. The node has not applied the answers that these compiles read.
func TestAStoppedCompileMakesNobodyGood(t *testing.T) {
	s := newSim(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	s.write("x", "1")
	s.all(first)
	id := s.begin(tutti.ModeApply, tutti.ConvergeStep{Prove: true})
	act := func() {
		t.Helper()
		acts := s.actions()
		if len(acts) != 1 {
			t.Fatalf("%d actions\n%s", len(acts), s.tail())
		}
		acts[0]()
	}
	act() // the node claims its run
	s.settle()
	s.write("x", "2")
	act() // the node compiles
	act() // the node's run comes to its gate
	s.write("x", "3")
	s.settle()
	s.write("x", "2")
	last := s.engine.Last("a")
	if !last.Claimed.Proof || last.Claimed.Gate != tutti.GateStop || s.engine.Jobs[id].Ended() {
		t.Fatalf("no compile was stopped: this test sees nothing\n%s", s.tail())
	}
	if got := s.standing("a"); got.Need != converge.Apply {
		t.Errorf("it has x = 1, and with x = 2 it needs %s", got.Need)
	}
}

// life is a random fleet together with the state of its machines.
type life struct {
	*sim
	d       seedDice
	applied map[tutti.NodeName]string      // the last catalog that the machine has certainly applied completely
	earlier map[tutti.NodeName][]string    // the machine's catalogs before the one in `applied`
	full    map[tutti.NodeName]*engine.Run // the last full run that passed its gate and has its result
	untold  map[tutti.NodeName]func()      // reports a run that the agent made by itself; the server does not know the run yet
	twice   map[tutti.NodeName]bool        // whether a copy of the machine exists, too
	checks  int
}

// The function `lives` simulates the life of one fleet. A long life has four to seven jobs, a short one has one or
// two. The function returns how often it checked a node that counted as good.
func lives(t *testing.T, seed uint64, long bool) (checks int) {
	d := seedDice{rand.New(rand.NewPCG(seed, 3))}
	nodes := acyclic(d, kinds{nodes: 6})
	for _, n := range sortedKeys(nodes) {
		nodes[n] = livelier(d, nodes[n])
	}
	s := newSim(t, nodes)
	l := &life{
		sim: s, d: d, applied: map[tutti.NodeName]string{}, earlier: map[tutti.NodeName][]string{},
		full: map[tutti.NodeName]*engine.Run{}, untold: map[tutti.NodeName]func(){}, twice: map[tutti.NodeName]bool{},
	}
	s.tells = d.IntN(3) > 0
	if d.IntN(3) == 0 {
		s.reaction = reactive()
	}
	s.writeAll(operators(d))
	s.afterEnd = l.ended
	jobs := 1 + d.IntN(3)/2
	if long {
		jobs = 4 + d.IntN(4)
	}
	for range jobs {
		mode := tutti.ModeApply
		if d.IntN(6) == 0 {
			mode = tutti.ModeNoop
		}
		s.begin(mode, tutti.ConvergeStep{Prove: d.IntN(6) == 0})
		l.look(t, seed, "a job began")
		for range 200 {
			s.now = s.now.Add(time.Second)
			if d.IntN(12) == 0 {
				l.look(t, seed, l.change())
			}
			acts := s.actions()
			if len(acts) == 0 {
				break
			}
			acts[d.IntN(len(acts))]()
			l.look(t, seed, "a message of a node")
			s.settle()
			l.look(t, seed, "what the server made of it")
		}
		l.look(t, seed, l.change())
	}
	return l.checks
}

// livelier makes a node's code use more input than in the random fleets of other tests. The code may use a
// fact, and every answer that the node reads. The code may make a fact, or fail.
func livelier(d seedDice, m *manifest) *manifest {
	compile, uses, all, fails := m.compile, d.IntN(2) == 0, d.IntN(2) == 0, d.IntN(5) == 0
	m.compile = func(got answers) catalog {
		c := compile(got)
		if uses {
			c.extra = "fact " + got.fact
		}
		if all {
			c.extra += fmt.Sprint(" answers ", got.values, got.exports)
		}
		if fails && mix(7, []string{"op/0", "op/1"}, got)%3 == 0 {
			c.fails = tutti.BecauseResources
		}
		return c
	}
	if made := fmt.Sprint("made ", d.IntN(3)); d.IntN(4) == 0 {
		m.makes = func(string) string { return made }
	}
	return m
}

// onDisk returns what a run leaves of a catalog on its machine. Exports are not on the
// machine.
func onDisk(c catalog) string {
	c.exports = nil
	return fmt.Sprint(c)
}

// The method `ended` is called when a node's run has its result.
func (l *life) ended(n tutti.NodeName) {
	r := l.engine.Last(n).Applied
	if r == nil || !r.Passed() || r.Result == nil || r.Proved || l.full[n] != nil && l.full[n].Run == r.Run {
		return
	}
	l.full[n] = r
	l.has(n, "")
	if r.Result.Outcome.Good() {
		l.has(n, onDisk(l.memory[r.Run].catalog))
	}
}

// The method `has` stores the state in which a machine is now. If `disk` is empty, nobody knows the state.
func (l *life) has(n tutti.NodeName, disk string) {
	if was, known := l.applied[n]; known {
		l.earlier[n] = append(l.earlier[n], was)
	}
	delete(l.applied, n)
	if disk != "" {
		l.applied[n] = disk
	}
}

// The method `look` compares the judgement of the nodes with their real state.
func (l *life) look(t *testing.T, seed uint64, did string) {
	s := l.sim
	needy := s.converge.Needy(converge.View{Has: s.view().Has})
	job := slices.ContainsFunc(slices.Collect(maps.Values(s.engine.Jobs)), func(j *engine.Job) bool { return !j.Ended() })
	for _, n := range s.names() {
		stands := s.standing(n)
		// While a job goes on, the list `needy` reflects what the nodes have read in this job.
		if !job && slices.Contains(needy, n) != (stands.Need != converge.Nothing) {
			t.Fatalf("seed %d, after %s: %s needs %s, and is counted otherwise\n%s", seed, did, n, stands.Need, s.tail())
		}
		if s.engine.Active[n] != "" || stands.Need != converge.Nothing || l.untold[n] != nil || l.twice[n] { // a node with two machines does not count as good
			continue
		}
		if s.tells && s.engine.Tell(n, s.factsOf(n), s.now) != nil { // the node will report its facts within a minute
			continue
		}
		l.checks++
		c := s.nodes[n].compile(s.asks(s.nodes[n], data.Asker{Node: n}).got)
		if !s.tells { // no node reports facts
			c.extra = strings.Replace(c.extra, "fact "+s.facts[n], "fact "+s.factThen(n), 1)
		}
		if got := onDisk(c); got != l.applied[n] || c.waits != "" {
			t.Fatalf("seed %d, after %s: %s is called good; it has %q, and a run would make %q\n%s", seed, did, n, l.applied[n], got, s.tail())
		}
		if got, want := fmt.Sprint(withoutEmpty(s.exported(n))), fmt.Sprint(withoutEmpty(c.exports)); got != want {
			t.Fatalf("seed %d, after %s: %s is called good; it exports %s, and a run would export %s\n%s", seed, did, n, got, want, s.tail())
		}
		if got, want := fmt.Sprint(s.publishedBy(n)), fmt.Sprint(c.values); got != want {
			t.Fatalf("seed %d, after %s: %s is called good; it publishes %s, and a run would publish %s\n%s", seed, did, n, got, want, s.tail())
		}
	}
}

// factThen returns the fact that a node had when its last passed run compiled.
func (s *sim) factThen(n tutti.NodeName) string {
	if r := s.engine.Last(n).Passed; r != nil && s.memory[r.Run] != nil {
		return s.memory[r.Run].got.fact
	}
	return ""
}

// The method `change` simulates a random change by a person, or a random event on a machine. It returns a
// description.
func (l *life) change() string {
	s, d := l.sim, l.d
	all := s.names()
	n := all[d.IntN(len(all))]
	if l.twice[n] {
		return l.keep(n)
	}
	switch d.IntN(15) {
	case 0, 1, 2:
		key := fmt.Sprintf("op/%d", d.IntN(3))
		s.write(key, string("abc"[d.IntN(3)]))
		return "a write of " + key
	case 3, 4:
		nodes := map[tutti.NodeName]*manifest{}
		for _, name := range all {
			nodes[name] = s.nodes[name]
			if d.IntN(3) == 0 {
				i, _ := strconv.Atoi(string(name[1:]))
				nodes[name] = livelier(d, random(d, i, kinds{nodes: 6}))
			}
		}
		s.ids++ // not the length of the log, which a restore shortens
		s.push(fmt.Sprint("code ", s.ids), nodes)
		return "a push"
	case 5:
		s.fold()
		return "a start of the server"
	case 6:
		l.blank(n)
		s.append(&tutti.NodeRemoved{Node: n, Replaced: true})
		s.append(&tutti.NodeEnrolled{Node: n})
		return "another machine for " + string(n)
	case 7:
		s.facts[n] = "abc"[d.IntN(3):][:1]
		return "a fact of " + string(n)
	case 8:
		return l.setBack(n)
	case 9:
		if s.engine.Active[n] == "" && l.untold[n] == nil {
			s.now = s.now.Add(time.Second)
			s.tell(n, s.now, others(changed))
			l.has(n, "")
			s.now = s.now.Add(time.Second)
			return "a foreign run on " + string(n)
		}
	case 10:
		return l.alone(n)
	case 11:
		for _, name := range all {
			if tell := l.untold[name]; tell != nil && !l.twice[name] {
				delete(l.untold, name)
				tell()
				return "the word of " + string(name) + " on a run of its own"
			}
		}
	case 12:
		return l.interrupt(n)
	case 13:
		return l.clone(n)
	case 14:
		return l.restore()
	}
	return "nothing"
}

// The method `blank` makes a machine empty.
func (l *life) blank(n tutti.NodeName) {
	l.has(n, "")
	delete(l.earlier, n)
	delete(l.full, n)
	delete(l.untold, n)
	delete(l.facts, n)
}

// setBack restores an earlier state of a machine. The server notices this at the next claim.
func (l *life) setBack(n tutti.NodeName) string {
	r := l.engine.Last(n).Passed
	if r == nil || r.Proved || l.engine.Active[n] != "" || len(l.earlier[n]) == 0 {
		return "nothing"
	}
	then := l.earlier[n][l.d.IntN(len(l.earlier[n]))]
	delete(l.untold, n)
	l.has(n, then)
	l.append(&tutti.NodeSetBack{Node: n, Run: r.Run})
	return "a set back of " + string(n)
}

// The method `interrupt` simulates the interruption of a run. Either the run's process dies, or the server hears
// nothing more from the machine, and the run goes on there.
func (l *life) interrupt(n tutti.NodeName) string {
	r := l.engine.Runs[l.engine.Active[n]]
	if r == nil || r.ClaimedAt.IsZero() {
		return "nothing"
	}
	applies := r.Passed() && r.Mode == tutti.ModeApply
	if l.d.IntN(2) == 0 {
		l.append(&tutti.RunLost{Run: r.Run, Reason: "nothing is heard of its node"})
		if applies {
			l.has(n, onDisk(l.memory[r.Run].catalog))
			l.has(n, "")
		}
		if l.d.IntN(2) == 0 {
			return "the loss of a run on " + string(n)
		}
		// the server has given up the run, and then gets the run's result
	}
	l.finish(tutti.Result{Run: r.Run, Outcome: tutti.Interrupted, Message: "the process is gone", Stopped: false})
	if applies {
		l.has(n, "")
	}
	return "the end of a process on " + string(n)
}

// The method `alone` simulates a run that a node's agent makes by itself. The run uses the code of the node's last
// full run and the last known answers. The server hears of this run at once, or later.
func (l *life) alone(n tutti.NodeName) string {
	s, r := l.sim, l.full[n]
	if r == nil || s.engine.Active[n] != "" || l.untold[n] != nil {
		return "nothing"
	}
	m := s.manifests[r.Code][n]
	got, same := l.lastKnown(n, m, s.memory[r.Run].got)
	got.fact = s.facts[n]
	c := m.compile(got)
	if c.waits != "" {
		return "nothing"
	}
	f := byItself("")
	f.Local.Away = l.d.IntN(2) == 0
	if same && onDisk(c) == onDisk(s.memory[r.Run].catalog) {
		f.Local.As = r.Run
	}
	switch disk, known := l.applied[n]; {
	case c.fails != "":
		failed(&f)
		l.has(n, "")
	default:
		if !known || disk != onDisk(c) {
			changed(&f)
		}
		l.has(n, onDisk(c))
	}
	began := s.now
	s.now = s.now.Add(2 * time.Second)
	tell := func() { s.tell(n, began, f) }
	if l.d.IntN(2) == 0 {
		tell()
		return "a run that " + string(n) + " made by itself"
	}
	l.untold[n] = tell
	return "a run that " + string(n) + " made by itself and has not told"
}

// lastKnown returns the last answers that a node's agent got to the questions of its code. The method also reports
// whether these answers equal the argument `then`.
func (l *life) lastKnown(n tutti.NodeName, m *manifest, then answers) (answers, bool) {
	out := answers{values: map[string]string{}, exports: map[string][]string{}}
	var runs []tutti.RunID
	for id := range l.memory {
		if r := l.engine.Runs[id]; r != nil && r.Node == n {
			runs = append(runs, id)
		}
	}
	slices.Sort(runs)
	for _, id := range runs {
		asked := l.manifests[l.engine.Runs[id].Code][n]
		for _, key := range slices.Concat(asked.values, prefixed("hiera:", asked.hiera)) {
			delete(out.values, key)
			if v, there := l.memory[id].got.values[key]; there {
				out.values[key] = v
			}
		}
		for _, typ := range asked.types {
			out.exports[typ] = l.memory[id].got.exports[typ]
		}
	}
	asks := slices.Concat(m.values, prefixed("hiera:", m.hiera))
	maps.DeleteFunc(out.values, func(key, _ string) bool { return !slices.Contains(asks, key) })
	maps.DeleteFunc(out.exports, func(typ string, _ []string) bool { return !slices.Contains(m.types, typ) })
	return out, fmt.Sprint(out.values, out.exports) == fmt.Sprint(then.values, then.exports)
}

func prefixed(prefix string, keys []string) []string {
	var out []string
	for _, key := range keys {
		out = append(out, prefix+key)
	}
	return out
}

// publishedBy returns the values that a node publishes now.
func (s *sim) publishedBy(n tutti.NodeName) map[string]string {
	out := map[string]string{}
	for _, v := range s.data.Values("") {
		if v.Owner == n {
			out[v.Key] = strings.Trim(string(v.Value), `"`)
		}
	}
	return out
}

// The method `exported` returns the titles that a node exports now, by type.
func (s *sim) exported(n tutti.NodeName) map[string][]string {
	out := map[string][]string{}
	for _, e := range s.data.Exports(n) {
		out[e.Type] = append(out[e.Type], e.Title)
	}
	return out
}
