//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// The type `weather` has the faults that a seed adds to a cold start. Seed 0 adds no faults.
type weather struct {
	seed   uint64
	kill   bool // kill -9 of the server in the middle of the first run
	slowed int  // the index of the node with a slow link, or -1 if no link is slow
	slow   lab.Slow
	// The field `delays` has one time for each node. The node's agent starts after this time. All
	// times are shorter than the server's deadline of silence.
	delays []time.Duration
}

func newWeather(seed uint64, nodes int) weather {
	w := weather{seed: seed, slowed: -1, delays: make([]time.Duration, nodes)}
	if seed == 0 {
		return w
	}
	r := rand.New(rand.NewPCG(seed, 0))
	w.slowed = int((seed - 1) % uint64(nodes)) // the next seed slows the next node
	w.slow = lab.Slow{Delay: time.Duration(20+r.IntN(180)) * time.Millisecond, Loss: float64(r.IntN(4)) / 100}
	for i := range w.delays {
		w.delays[i] = time.Duration(r.IntN(200)) * 100 * time.Millisecond
	}
	return w
}

func (w weather) describe(f *stage.LabFleet) string {
	if w.seed == 0 {
		return map[bool]string{false: "undisturbed", true: "the server killed in the middle"}[w.kill]
	}
	parts := []string{fmt.Sprintf("%s slow by %s, %g%% lost; agents start after", f.Nodes[w.slowed].Name, w.slow.Delay, w.slow.Loss*100)}
	for i, d := range w.delays {
		parts = append(parts, fmt.Sprintf("%s %.1fs", f.Nodes[i].Name, d.Seconds()))
	}
	return strings.Join(parts, " ")
}

// TestConvergeSwift deploys the example from nothing without its plan. There are four runs, one on
// each node, and no run fails, although the test kills the server in the middle. A second converge
// starts no runs. With E2E_DEEP the test kills nothing, and afterwards the fleet scales out and in
// by itself. With E2E_COLD (seeds with commas) the test deploys once for each seed instead. The
// agents start at random times, and one node after the other has a slow link.
func TestConvergeSwift(t *testing.T) {
	scales := os.Getenv("E2E_COLD") == "" && os.Getenv("E2E_DEEP") != ""
	coldStarts(t, coldTest{
		seeds: "E2E_COLD", without: "0",
		kill: os.Getenv("E2E_COLD") == "" && !scales,
		begin: func(t *testing.T) *stage.LabFleet {
			if scales {
				return exampleFleet(t, "swift", spareStorage)
			}
			return exampleFleet(t, "swift")
		},
		check: func(t *testing.T, f *stage.LabFleet) {
			if err := f.StoreAndFetch(t.Context(), []byte("all together"), t.Logf); err != nil {
				t.Error(err)
			}
			if scales {
				checkSwiftScales(t, f)
			}
		},
	})
}

// TestConvergeSmall starts a small cluster from nothing. The cluster is like the example, but takes
// only seconds. E2E_SMALL has the seeds.
func TestConvergeSmall(t *testing.T) {
	coldStarts(t, coldTest{
		seeds: "E2E_SMALL", without: "1",
		begin: func(t *testing.T) *stage.LabFleet {
			for _, h := range fleet.Nodes {
				leave(t, h)
				sh(t, h, "rm -f /var/tmp/e2e-*")
				joinAgain(t.Context(), t, h)
				later(t, h, "rm -f /var/tmp/e2e-*")
			}
			if err := fleet.Client.UnsetValue(t.Context(), "shared/rings/object"); err != nil && tutti.CodeOf(err) != tutti.CodeNotFound {
				t.Fatal(err)
			}
			push(t, scaleFleet, scaleSite, scaleModule)
			return fleet
		},
		check: func(t *testing.T, _ *stage.LabFleet) {
			made := "sha256:" + sh(t, fleet.Nodes[0], "sha256sum < /var/tmp/e2e-rings | cut -d' ' -f1")
			for _, h := range fleet.Nodes[1:] {
				if got := sh(t, h, "cat /var/tmp/e2e-fetched"); got != made {
					t.Errorf("%s has other rings than were made: %s, not %s", h.Name, got, made)
				}
			}
		},
	})
}

// coldTest starts a fleet from nothing, once for each of its seeds.
type coldTest struct {
	// The field `seeds` is the name of the environment variable with the seeds. If this variable is not set,
	// the test uses the seeds in the field `without`.
	seeds, without string
	kill           bool // with seed 0 the test kills the server
	begin          func(*testing.T) *stage.LabFleet
	check          func(*testing.T, *stage.LabFleet)
}

// coldStarts runs the test for each seed and prints a table of the results.
func coldStarts(t *testing.T, c coldTest) {
	t.Helper()
	var table []string
	for _, seed := range seeds(t, c.seeds, c.without) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			f := c.begin(t)
			w := newWeather(seed, len(f.Nodes))
			w.kill = c.kill && seed == 0
			t.Logf("seed %d: %s", seed, w.describe(f))
			table = append(table, w.coldStart(t, f))
			c.check(t, f)
		})
	}
	t.Logf("cold starts:\n%5s %5s %9s %7s %12s %16s %7s  %s\n%s",
		"seed", "runs", "compiles", "failed", "second runs", "second compiles", "wall", "weather", strings.Join(table, "\n"))
}

// coldStart converges a fleet from nothing, and then a second time. coldStart returns the line of the table. With seed
// 0 the first converge needs one run of each node. With other seeds n nodes need at most 2n-1 runs in all.
func (w weather) coldStart(t *testing.T, f *stage.LabFleet) string {
	t.Helper()
	least, most := len(f.Nodes), 2*len(f.Nodes)-1
	if w.seed == 0 {
		most = least
	}
	j := w.converge(t, f)
	first := j.Summary(j.EndedAt)
	if first.Outcome != tutti.VerdictConverged || first.Runs < least || first.Runs > most || first.Failed != 0 {
		t.Errorf("summary %+v (%s), want from %d to %d runs, none failed", first, j.Message, least, most)
	}
	applied := map[tutti.NodeName]int{}
	for _, r := range runsOf(j.Job) {
		t.Logf("%6.1fs %6.1fs %s attempt %d: %s %s %s", r.WantedAt.Sub(j.StartedAt).Seconds(), r.EndedAt.Sub(j.StartedAt).Seconds(), r.Node, r.Attempt, r.Gate, r.Outcome(), r.GateWhy)
		if r.Passed() {
			applied[r.Node]++
		}
	}
	for _, h := range f.Nodes {
		// The node has one line `apply` for each catalog that it began to apply.
		got := sh(t, h, `cat /var/lib/tutti/agent/runs/*/phase.jsonl | grep -c '"phase":"apply"'`)
		if n := applied[tutti.NodeName(h.Name)]; got != fmt.Sprint(n) || w.seed == 0 && n != 1 {
			t.Errorf("%s applied %s catalogs, %d by the log, want 1", h.Name, got, n)
		}
	}
	checkStartedOnce(t, f, j.Job)
	checkAllGood(t, f)
	again := converge(t, f).end()
	second := again.Summary(again.EndedAt)
	if second.Outcome != tutti.VerdictConverged || len(runsOf(again.Job)) != 0 {
		t.Errorf("the second time %+v (%s), want no runs and no compiles", second, again.Message)
	}
	return fmt.Sprintf("%5d %5d %9d %7d %12d %16d %6.1fs  %s",
		w.seed, first.Runs, first.Compiles, first.Failed, second.Runs, second.Compiles, first.Wall.Seconds(), w.describe(f))
}

// The method `converge` starts the job while all agents are down, and then starts each agent after
// its delay.
func (w weather) converge(t *testing.T, f *stage.LabFleet) *job {
	t.Helper()
	if w.kill {
		j := converge(t, f)
		j.until(func(w api.Watched) bool { return w.Live != nil && w.Live.Resource != "" })
		killServer(t, f)
		return j.end()
	}
	if w.seed == 0 {
		return converge(t, f).end()
	}
	slowed := f.Nodes[w.slowed]
	if err := slowed.Slow(t.Context(), w.slow); err != nil {
		t.Fatal(err)
	}
	defer heal(context.WithoutCancel(t.Context()), t, slowed)
	for _, h := range f.Nodes {
		sh(t, h, "systemctl stop tutti-agent")
	}
	j := converge(t, f)
	for i, h := range f.Nodes {
		sh(t, h, fmt.Sprintf("systemd-run --quiet --on-active=%dms --timer-property=AccuracySec=50ms systemctl start tutti-agent", w.delays[i].Milliseconds()))
	}
	return j.end()
}

// The function `converge` starts a job that converges all nodes of a fleet.
func converge(t *testing.T, f *stage.LabFleet) *job {
	t.Helper()
	id, err := f.Client.StartJob(t.Context(), api.StartJob{Converge: &tutti.ConvergeStep{}, Mode: tutti.ModeApply})
	if err != nil {
		t.Fatal(err)
	}
	return &job{id: id, t: t, f: f}
}

// checkAllGood checks that, for the server, every node's last run was good.
func checkAllGood(t *testing.T, f *stage.LabFleet) {
	t.Helper()
	nodes, err := f.Client.ListNodes(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(nodes) != len(f.Nodes) {
		t.Errorf("%d nodes, want %d", len(nodes), len(f.Nodes))
	}
	for _, n := range nodes {
		if !n.Outcome.Good() || n.Active != "" {
			t.Errorf("%s is not good: %s:%s %s (active %q)", n.Node, n.Outcome, n.Reason, n.Message, n.Active)
		}
	}
}
