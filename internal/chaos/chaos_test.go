package chaos

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
)

var four = Fleet{Server: "tutti", Nodes: []string{"node-01", "node-02", "node-03"}}

func TestTheSameSeedIsTheSameSchedule(t *testing.T) {
	first := Schedule(7, four, time.Minute)
	shuffled := Fleet{Server: "tutti", Nodes: []string{"node-03", "node-01", "node-02"}}
	if diff := cmp.Diff(first, Schedule(7, shuffled, time.Minute)); diff != "" {
		t.Errorf("the order in which nodes are named counts: -first +second\n%s", diff)
	}
	if cmp.Equal(first, Schedule(8, four, time.Minute)) {
		t.Error("another seed is the same schedule")
	}
	// The schedule of a seed must never change, because somebody may have written down a
	// seed.
	want := `seed 7: 6 faults
   1.9s  pause server on tutti for 9.8s
   6.3s  slow on node-02 for 6.6s (400ms, 2% lost)
  16.8s  slow on node-01 for 10.2s (200ms, 1% lost)
  30.1s  kill server on tutti
  37.6s  kill agent on node-03
  51.9s  kill agent on node-02`
	if diff := cmp.Diff(want, Describe(7, first)); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestTurns: there is one turn of each kind. The turn Restore is on the server, and every other
// turn is on a node.
func TestTurns(t *testing.T) {
	first := map[TurnKind]bool{}
	for seed := range uint64(50) {
		turns := Turns(seed, four, true)
		if diff := cmp.Diff(turns, Turns(seed, Fleet{Server: four.Server, Nodes: []string{"node-02", "node-01", "node-03"}}, true)); diff != "" {
			t.Fatal(diff)
		}
		kinds := map[TurnKind]bool{}
		for _, turn := range turns {
			kinds[turn.Kind] = true
			if onServer := turn.Host == four.Server; onServer != (turn.Kind == Restore) || !onServer && !slices.Contains(four.Nodes, turn.Host) {
				t.Errorf("seed %d: %s", seed, turn)
			}
		}
		if len(kinds) != 4 || len(turns) != 4 {
			t.Errorf("seed %d: %v", seed, turns)
		}
		first[turns[0].Kind] = true
		if slices.ContainsFunc(Turns(seed, four, false), func(turn Turn) bool { return turn.Kind == Clone }) {
			t.Errorf("seed %d: a clone without a spare host", seed)
		}
	}
	if len(first) != 4 {
		t.Errorf("the seed says nothing about the order: %v come first", first)
	}
}

func TestScheduleKeepsItsRules(t *testing.T) {
	const length = 2 * time.Minute
	seen := map[Kind]int{}
	patient := 0
	for seed := range uint64(500) {
		busy := map[string]time.Duration{}
		faults := Schedule(seed, four, length)
		if !slices.IsSortedFunc(faults, func(a, b Fault) int { return int(a.At - b.At) }) {
			t.Fatalf("seed %d is not in order:\n%s", seed, Describe(seed, faults))
		}
		for _, f := range faults {
			seen[f.Kind]++
			if f.End() > length {
				t.Errorf("seed %d: %s: not over in time", seed, f)
			}
			if f.At < busy[f.Host] {
				t.Errorf("seed %d: %s: two at once", seed, f)
			}
			busy[f.Host] = f.End()
			if server := f.Host == "tutti"; f.Kind == KillAgent && server || (f.Kind == KillServer || f.Kind == PauseServer) && !server {
				t.Errorf("seed %d: %s: on the wrong host", seed, f)
			}
			if f.For > short && f.For < Deadline+Beat {
				t.Errorf("seed %d: %s: about as long as the deadline", seed, f)
			}
			if f.For > short {
				patient++
				if f.Host == "tutti" && f.Kind != PauseServer {
					t.Errorf("seed %d: %s: gives everything up", seed, f)
				}
			}
		}
	}
	for _, k := range []Kind{Cut, Slow, Power, KillAgent, KillServer, PauseServer} {
		if seen[k] == 0 {
			t.Errorf("%s never happens", k)
		}
	}
	if patient == 0 {
		t.Error("nothing lasts longer than the deadline")
	}
}

func TestJudge(t *testing.T) {
	at := func(seconds float64) time.Time {
		return time.Unix(1000, 0).Add(time.Duration(seconds * float64(time.Second)))
	}
	cut := func(host string, from, to float64) Spell { return Spell{host, at(from), at(to)} }
	one := Wanted{Run: "r1", Node: "n1", Job: "j", Claimed: true, Result: true}
	lost := Wanted{Run: "r1", Node: "n1", Job: "j", Claimed: true, LostAt: at(100)}
	ran := Started{Run: "r1", Node: "n1", Starts: 1, From: at(10), To: at(20), Result: true}
	unsent := one
	unsent.Result = false
	unclaimed := one
	unclaimed.Claimed = false
	twice := ran
	twice.Starts = 2
	foreign := ran
	foreign.Node = "n2"
	tests := map[string]struct {
		reason string
		h      History
		want   string // a part of the text of the only finding; empty: there is no finding
	}{
		"good":            {"all is well", History{Wanted: []Wanted{one}, Started: []Started{ran}, Jobs: []api.JobView{{Job: "j", Verdict: tutti.VerdictFailed}}, Nodes: []api.NodeView{{Node: "n1", Connected: true}}}, ""},
		"pruned":          {"agents keep a number of runs", History{Wanted: []Wanted{one}}, ""},
		"no verdict":      {"a job hangs", History{Jobs: []api.JobView{{Job: "j"}}}, "job j has no verdict"},
		"unknown":         {"nobody wanted it", History{Started: []Started{ran}}, "which the log does not know"},
		"other node's":    {"a mix-up", History{Wanted: []Wanted{one}, Started: []Started{foreign}}, "which is one of n1"},
		"unclaimed":       {"a process before its claim", History{Wanted: []Wanted{unclaimed}, Started: []Started{ran}}, "without a claim"},
		"started twice":   {"a second process", History{Wanted: []Wanted{one}, Started: []Started{twice}}, "2 times"},
		"dropped result":  {"what the node knows", History{Wanted: []Wanted{unsent}, Started: []Started{ran}}, "the log has none"},
		"two at once":     {"on one node", History{Wanted: []Wanted{one, {Run: "r2", Node: "n1", Claimed: true}}, Started: []Started{ran, {Run: "r2", Node: "n1", Starts: 1, From: at(19), To: at(30)}}}, "two Puppets at once"},
		"one by one":      {"on one node", History{Wanted: []Wanted{one, {Run: "r2", Node: "n1", Claimed: true}}, Started: []Started{ran, {Run: "r2", Node: "n1", Starts: 1, From: at(20), To: at(30)}}}, ""},
		"side by side":    {"on two nodes", History{Wanted: []Wanted{one, {Run: "r2", Node: "n2", Claimed: true}}, Started: []Started{ran, {Run: "r2", Node: "n2", Starts: 1, From: at(15), To: at(30)}}}, ""},
		"never had lock":  {"it waited", History{Wanted: []Wanted{one, {Run: "r2", Node: "n1", Claimed: true}}, Started: []Started{ran, {Run: "r2", Node: "n1", Starts: 1}}}, ""},
		"lost":            {"it was away", History{Wanted: []Wanted{lost}, Spells: []Spell{cut("n1", 69, 120)}}, ""},
		"lost for no":     {"nothing befell it", History{Wanted: []Wanted{lost}}, "away for 0.0s"},
		"lost too soon":   {"a short cut is none", History{Wanted: []Wanted{lost}, Spells: []Spell{cut("n1", 86, 98)}}, "away for 12.0s"},
		"lost long after": {"it was back", History{Wanted: []Wanted{lost}, Spells: []Spell{cut("n1", 20, 70)}}, "away for 0.0s"},
		"lost as other":   {"another node was away", History{Wanted: []Wanted{lost}, Spells: []Spell{cut("n2", 50, 120)}}, "away for 0.0s"},
		"server away":     {"it could hear nobody", History{Server: "s", Wanted: []Wanted{lost}, Spells: []Spell{cut("s", 69, 120)}}, ""},
		"in a row":        {"it had no time to come back", History{Server: "s", Wanted: []Wanted{lost}, Spells: []Spell{cut("n1", 69, 80), cut("s", 83, 100)}}, ""},
		"with a rest":     {"it had", History{Server: "s", Wanted: []Wanted{lost}, Spells: []Spell{cut("n1", 69, 75), cut("s", 88, 100)}}, "away for 17.0s"},
		"overlapping":     {"both at once count once", History{Server: "s", Wanted: []Wanted{lost}, Spells: []Spell{cut("n1", 80, 95), cut("s", 82, 90)}}, "away for 15.0s"},
		"away still":      {"at the end all is healed", History{Nodes: []api.NodeView{{Node: "n1"}}}, "n1 is not connected"},
		"stuck":           {"its run does not end", History{Nodes: []api.NodeView{{Node: "n1", Connected: true, Active: "r1"}}}, "n1 is stuck in run r1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.h.Spells = slices.Clone(tt.h.Spells)
			got := Judge(tt.h)
			if tt.want == "" && len(got) > 0 || tt.want != "" && (len(got) != 1 || !strings.Contains(got[0], tt.want)) {
				t.Errorf("%s: found %q, want %q in the only one", tt.reason, got, tt.want)
			}
		})
	}
}
