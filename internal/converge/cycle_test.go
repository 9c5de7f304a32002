package converge_test

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

// The method `ends` returns the verdicts and the messages of all jobs that have ended.
func (s *sim) ends() (verdicts []tutti.Verdict, messages []string) {
	for _, id := range s.engine.Order {
		if j := s.engine.Jobs[id]; j.Steps[0].Verdict != "" {
			verdicts, messages = append(verdicts, j.Steps[0].Verdict), append(messages, j.Steps[0].Message)
		}
	}
	return verdicts, messages
}

func plusOne(key string) func(answers) string {
	return func(a answers) string { n, _ := strconv.Atoi(a.values[key]); return strconv.Itoa(n + 1) }
}

// The function `storm` returns a reactive fleet. Nodes a and b increment each other's counter, and node
// c reads the counter of node a. Nodes react to a change only at the end of a window of one minute. So
// a job has ended before nodes react to its changes.
func storm(t *testing.T) *sim {
	s := newSim(t, map[tutti.NodeName]*manifest{
		"a": publishes("v/a", plusOne("v/b"), "v/b"), "b": publishes("v/b", plusOne("v/a"), "v/a"), "c": reads("v/a"),
	})
	s.reaction = reactive()
	s.reaction.Wide = time.Minute
	s.reaction.Reads = []tutti.ReadReaction{{Key: "v/**", When: tutti.ReactWindow}}
	return s
}

// If nodes react to each other, each node reacts at most six times within an hour, even if each
// reaction is in another job. Then a job ends as diverging and names the nodes.
func TestNodesThatReactToEachOther(t *testing.T) {
	s := storm(t)
	s.live(10 * time.Hour)
	for n, runs := range s.runs() {
		if runs > 10 {
			t.Errorf("%s ran %d times in ten hours, want the first run and six reactions, and a few between", n, runs)
		}
	}
	verdicts, messages := s.ends()
	told := strings.Join(messages, "\n")
	for _, says := range []string{
		`keeps changing: it reacted to value "v/`, "6 times within 1h", `nodes react to each other: `, ` → a (value "v/b" = "`, ` → b (value "v/a" = "`, "tutti converge",
	} {
		if !strings.Contains(told, says) {
			t.Errorf("no job says %q:\n%s", says, told)
		}
	}
	if chain := regexp.MustCompile(`: b → a \(value "v/b" = "\d+"\) → b \(value "v/a" = "\d+"\)\. It does not`); !chain.MatchString(told) {
		t.Errorf("no job prints the cycle as one chain:\n%s", told)
	}
	diverging := 0
	for _, v := range verdicts {
		if v == tutti.VerdictDiverging {
			diverging++
		}
		if v == tutti.VerdictConverged {
			t.Errorf("%v: a job is converged, and nodes were not good", verdicts)
		}
	}
	if diverging == 0 || diverging > 3 {
		t.Errorf("%v: %d jobs diverge, want that it is said once for each node at most", verdicts, diverging)
	}

	before := s.runs()
	s.fold()          // a restart does not forget the reactions
	s.set("v/b", "5") // node a reads this value, and may react, because a person has set it
	s.live(10 * time.Hour)
	if got := since(before, s.runs()); got["a"] != 1 || len(got) != 1 {
		t.Errorf("%v ran after a restart, want a once\n%s", got, s.tail())
	}

	s.push("two", map[tutti.NodeName]*manifest{"a": reads("v/b"), "b": reads("v/a"), "c": reads("v/a")})
	s.live(time.Hour)
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		t.Errorf("after new code %v are not good\n%s", needy, s.tail())
	}
}

// A node does not react any more, because it has reacted too often. If a person then runs `tutti
// converge` for the node, the node may react again.
func TestAPersonEndsThatANodeIsLetAlone(t *testing.T) {
	s := storm(t)
	s.live(10 * time.Hour)
	s.reaction = nil
	s.begin(tutti.ModeApply, tutti.ConvergeStep{Target: "c"})
	s.live(10 * time.Minute)
	s.reaction = reactive()
	before := s.runs()["c"]
	s.set("v/a", "by a person")
	s.live(time.Minute)
	if got := s.runs()["c"] - before; got != 1 {
		t.Errorf("c ran %d times after a change, want once: a person has run it before\n%s", got, s.tail())
	}
}

// Answers may change often without a cycle, for example because many nodes join one after the other.
// Then no job ends as diverging. The collecting node reacts as often as its bound allows, and again
// when the bound allows it.
func TestManyChangesAreNoCycle(t *testing.T) {
	exporter := func(i int) *manifest {
		return &manifest{compile: func(answers) catalog { return catalog{exports: map[string][]string{"Sshkey": {fmt.Sprint(i)}}} }}
	}
	s := newSim(t, map[tutti.NodeName]*manifest{"collector": {types: []string{"Sshkey"}, compile: func(a answers) catalog {
		return catalog{extra: strings.Join(a.exports["Sshkey"], " ")}
	}}})
	s.reaction = reactive()
	s.live(time.Hour)
	before := s.runs()["collector"]
	for i := range 9 {
		s.join(tutti.NodeName(fmt.Sprintf("node-%d", i)), exporter(i))
		s.live(2 * time.Minute)
	}
	if got := s.runs()["collector"] - before; got != 6 {
		t.Errorf("the collector ran %d times within 20 minutes, want six\n%s", got, s.tail())
	}
	verdicts, messages := s.ends()
	if last := len(verdicts) - 1; verdicts[last] != tutti.VerdictDeferred || !strings.Contains(messages[last], "deferred: collector: it has reacted to ") {
		t.Errorf("%s: %s, want deferred", verdicts[last], messages[last])
	}
	s.live(time.Hour)
	if got := s.runs()["collector"] - before; got < 7 || got > 9 {
		t.Errorf("the collector ran %d times in all, want that it runs once the hour is over\n%s", got, s.tail())
	}
	if needy := s.converge.Needy(s.view()); len(needy) > 0 {
		t.Errorf("%v are not good\n%s", needy, s.tail())
	}
}

// A node reacts to every change by a person, however often the person changes a value.
func TestAPersonIsNotBounded(t *testing.T) {
	s := living(t, map[tutti.NodeName]*manifest{"a": reads("x")})
	before := s.runs()["a"]
	for i := range 20 {
		s.set("x", fmt.Sprint(i))
		s.live(time.Minute)
	}
	if got := s.runs()["a"] - before; got != 20 {
		t.Errorf("a ran %d times for 20 changes\n%s", got, s.tail())
	}
}

// A job that the server began is converged only if all connected nodes are good.
func TestConvergedMeansThatNobodyIsStale(t *testing.T) {
	cases := map[string]struct {
		nodes map[tutti.NodeName]*manifest
		rules []tutti.ReadReaction
		gone  tutti.NodeName
		want  tutti.Verdict
		says  string
	}{
		"all good":        {nil, nil, "", tutti.VerdictConverged, ""},
		"for the window":  {map[tutti.NodeName]*manifest{"b": reads("y")}, []tutti.ReadReaction{{Key: "y", When: tutti.ReactWindow}}, "", tutti.VerdictDeferred, "deferred: b: this change may wait for others: it runs within 15m"},
		"for its turn":    {map[tutti.NodeName]*manifest{"b": reads("y")}, []tutti.ReadReaction{{Key: "y", When: tutti.ReactScheduled}}, "", tutti.VerdictDeferred, "deferred: b: the fleet file lets it wait"},
		"failed before":   {map[tutti.NodeName]*manifest{"b": breaks(tutti.BecauseCompile)}, nil, "", tutti.VerdictDeferred, "deferred: b: nothing has changed since its last run"},
		"is not there":    {map[tutti.NodeName]*manifest{"b": reads("y")}, nil, "b", tutti.VerdictPartial, "not good and not connected: b"},
		"two, for a rule": {map[tutti.NodeName]*manifest{"b": reads("y"), "c": reads("y")}, []tutti.ReadReaction{{Key: "y", When: tutti.ReactScheduled}}, "", tutti.VerdictDeferred, "deferred: b, c: "},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			nodes := map[tutti.NodeName]*manifest{"a": reads("x")}
			for n, m := range tc.nodes {
				nodes[n] = m
			}
			s := newSim(t, nodes)
			s.reaction = reactive()
			s.reaction.Reads = tc.rules
			s.live(5 * time.Minute)
			s.gone[tc.gone] = tc.gone != ""
			s.write("y", "1")
			s.write("x", "1")
			s.settle()
			s.live(time.Minute)
			verdicts, messages := s.ends()
			if last := len(verdicts) - 1; verdicts[last] != tc.want || !strings.Contains(messages[last], tc.says) {
				t.Errorf("%s: %q, want %s with %q\n%s", verdicts[last], messages[last], tc.want, tc.says, s.tail())
			}
		})
	}
}

// In a job, node `builder` reads what the compile of node `storage` exports, before these exports are
// public. Until they are public, `builder` is stale in the public view. After that, no job may name
// `builder` as stale. It does not matter when the server judged `builder` before.
func TestWhatIsNotStaleAnyMoreIsNotNamed(t *testing.T) {
	for seed := range uint64(50) {
		s := newSim(t, map[tutti.NodeName]*manifest{"builder": {types: []string{"Sshkey"}, compile: func(a answers) catalog {
			return catalog{values: map[string]string{"rings": strings.Join(a.exports["Sshkey"], " ")}}
		}}})
		s.reaction, s.tells = reactive(), true
		s.live(5 * time.Minute)
		s.join("storage", &manifest{values: []string{"rings"}, compile: func(a answers) catalog {
			return catalog{exports: map[string][]string{"Sshkey": {"storage"}}, extra: a.values["rings"]}
		}})
		dice := rand.New(rand.NewPCG(seed, 1))
		for range 100 {
			s.settle()
			s.step(dice.IntN)
		}
		s.settle()
		verdicts, messages := s.ends()
		for i, v := range verdicts {
			if v != tutti.VerdictConverged {
				t.Fatalf("seed %d: %s: %q, want converged\n%s", seed, v, messages[i], s.tail())
			}
		}
		if needy := s.converge.Needy(s.view()); len(needy) > 0 {
			t.Fatalf("seed %d: %v are not good\n%s", seed, needy, s.tail())
		}
	}
}
