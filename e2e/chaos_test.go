//go:build e2e

package e2e_test

import (
	"cmp"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

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
	// these two seeds have most kinds of faults, and nodes that are away for longer than the
	// deadline. Seed 17 has the other kinds
	chaosSeeds = "8,10"
	chaosFor   = time.Minute
)

// TestChaos executes a plan repeatedly while the fleet has the faults of a seed. Afterwards
// TestChaos compares the log with the state of the nodes.
func TestChaos(t *testing.T) {
	push(t, chaosFleet, chaosSite)
	length := chaosFor
	if text := os.Getenv("E2E_CHAOS"); text != "" {
		var err error
		if length, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
	}
	for i, seed := range seeds(t, "E2E_SEEDS", chaosSeeds) {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			found, err := stage.Chaos{Fleet: fleet, Plan: "chaos", Seed: seed, For: length, Turns: i == 0, Say: t.Logf}.Run(t.Context())
			if err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			for _, f := range found {
				t.Errorf("seed %d: %s", seed, f)
			}
		})
	}
}

// seeds reads the numbers in an environment variable, which are separated by commas.
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
