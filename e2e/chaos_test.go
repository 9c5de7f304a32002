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

// chaosFleet has something of everything: what others read, a step that accepts
// what failed, a node in two steps.
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

// The schedules of faults that every run of the tests meets, and how long each
// is. E2E_SEEDS, numbers with commas, and E2E_CHAOS replace them.
const (
	chaosSeeds = "8,10" // between them most kinds of fault, and nodes away for longer than the deadline; 17 has the others
	chaosFor   = time.Minute
)

// TestChaos executes a plan again and again while the faults of a seed befall the
// fleet, and compares afterwards what the log and the nodes have.
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

// seeds reads the numbers, with commas, of an environment variable.
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
