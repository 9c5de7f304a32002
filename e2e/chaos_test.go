//go:build e2e

package e2e_test

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tutti-project/tutti/internal/chaos"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// chaosFleet contains many cases: data that other nodes read, a step that accepts failures, and a
// node in two steps.
const chaosFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  first: {nodes: [node-01, node-02]}
  then:  {nodes: [node-02, node-03]}
grants:
  - {to: first, write: [shared/chaos/**], exports: [Notify]}
plans:
  chaos:
    steps:
      - {run: first, accept: [lost]}
      - run: then
`

const chaosSite = `
node 'node-01', 'node-02' {
  @@notify { $trusted['certname']: }
  tutti_value { "shared/chaos/${trusted['certname']}": value => $facts['networking']['ip'] }
  exec { '/bin/true': unless => '/bin/sleep 2' }
}
node 'node-03' {
  Notify <<| |>>
  $first = tutti::value('shared/chaos/node-01', undef)
  exec { '/bin/true': unless => '/bin/sleep 1' }
}
`

// These are the schedules of faults for every run of the tests, and the length of each schedule.
// E2E_SEEDS (numbers with commas) and E2E_CHAOS replace the seeds and the length.
const (
	// together these two seeds have all kinds of faults, and each has a node that is away for longer than the deadline
	chaosSeeds = "18,42"
	chaosFor   = time.Minute
)

// chaosSpare is a host that is not a node, so that a node can be cloned to it.
const chaosSpare = "spare"

func chaosLab() string { return labName("e2e-chaos") }

// TestChaos executes a plan repeatedly while the fleet has the faults of a seed. Afterwards
// TestChaos compares the log with the state of the nodes. TestChaos also fails if the seeds had
// no fault of some kind.
func TestChaos(t *testing.T) {
	spec := mustReadSpec(t, "lab.yaml")
	spec.Name = chaosLab()
	spec.Hosts = append(spec.Hosts, lab.HostSpec{Name: chaosSpare})
	f, err := startFleet(t.Context(), bootLab(t, spec), "tutti", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	leaveFleet(t, f, chaosSpare)
	if err := f.Push(t.Context(), write(t, chaosFleet, chaosSite)); err != nil {
		t.Fatal(err)
	}
	length := chaosFor
	if text := os.Getenv("E2E_CHAOS"); text != "" {
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	all := map[string]int{
		string(chaos.Cut): 0, string(chaos.Slow): 0, string(chaos.Power): 0, string(chaos.KillAgent): 0, string(chaos.KillServer): 0, string(chaos.PauseServer): 0,
		string(chaos.SetBack): 0, string(chaos.Replace): 0, string(chaos.Clone): 0, string(chaos.Restore): 0,
	}
	var mu sync.Mutex
	for i, seed := range seeds(t, "E2E_SEEDS", chaosSeeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			say := func(format string, args ...any) {
				t.Logf(format, args...)
				mu.Lock()
				defer mu.Unlock()
				if len(args) != 1 {
					return
				}
				switch deed := args[0].(type) {
				case chaos.Fault:
					if deed.Host != chaosSpare { // the spare host does not belong to the fleet
						all[string(deed.Kind)]++
					}
				case chaos.Turn:
					all[string(deed.Kind)]++
				}
			}
			found, err := stage.Chaos{Fleet: f, Plan: "chaos", Seed: seed, For: length, Turns: i == 0, Say: say}.Run(t.Context())
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, f := range found {
				t.Errorf("seed %d: %s", seed, f)
			}
		})
	}
	t.Logf("faults in all seeds: %v", all)
	if os.Getenv("E2E_SEEDS") != "" || os.Getenv("E2E_CHAOS") != "" || t.Failed() {
		return // a schedule of faults from the environment need not have all faults
	}
	for kind, n := range all {
		if n == 0 {
			t.Errorf("no seed had the fault %q", kind)
		}
	}
}

// The function `seeds` reads the numbers in an environment variable, which are separated by commas.
func seeds(t *testing.T, variable, without string) []uint64 {
	t.Helper()
	var out []uint64
	for text := range strings.SplitSeq(cmp.Or(os.Getenv(variable), without), ",") {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", variable, err)
		}
		out = append(out, seed)
	}
	return out
}
