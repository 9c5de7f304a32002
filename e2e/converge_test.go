//go:build e2e

package e2e_test

import (
	"context"
	"encoding/json"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/cli"
	"github.com/tutti-project/tutti/internal/lab"
)

const roundFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  round: {nodes: [node-01, node-02, node-03]}
grants:
  - {to: round, write: [shared/round/**], exports: [Notify]}
`

// roundSite is a cycle of three nodes. node-02 collects an export of node-01, node-03 reads a value
// of node-02, and node-01 reads a value of node-03. An export is known after the compile, so
// node-02 runs first and node-01 last. Each node records the value that it has read. The argument
// `word` distinguishes one site from another.
func roundSite(word string) string {
	return strings.ReplaceAll(`
		define published(String $text) {
			tutti_value { "shared/round/${trusted['certname']}": value => $text }
		}
		node 'node-01' {
			@@notify { 'WORD': }
			$text = tutti::value('shared/round/node-03', 'nothing')
			file { '/var/tmp/e2e-round': content => $text }
			-> `+waitExec+`
		}
		node 'node-02' {
			Notify <<| |>>
			`+waitExec+`
			-> published { 'it': text => 'WORD' }
		}
		node 'node-03' {
			$text = tutti::value('shared/round/node-02', 'nothing')
			file { '/var/tmp/e2e-round': content => $text }
			-> `+waitExec+`
			-> published { 'it': text => $text }
		}
	`, "WORD", word)
}

// checkRound checks that the value of the first node has reached the last node, and that no node
// needs a run.
func checkRound(t *testing.T, word string) {
	t.Helper()
	for _, name := range []string{"node-03", "node-01"} {
		if got := sh(t, host(t, name), "cat /var/tmp/e2e-round"); got != word {
			t.Errorf("%s: %q has come round, want %q", name, got, word)
		}
	}
	again := converge(t, fleet).end()
	if again.Verdict != tutti.VerdictConverged || len(runsOf(again.Job)) != 0 {
		t.Errorf("converging again: %s (%s) with %d runs, want nothing to do", again.Verdict, again.Message, len(runsOf(again.Job)))
	}
}

// checkSummary compares the verdict and the numbers of a converge job.
func (j *job) checkSummary(verdict tutti.Verdict, runs, failed int) {
	j.t.Helper()
	s := j.Summary(j.EndedAt)
	if s.Outcome != verdict || s.Runs != runs || s.Failed != failed {
		j.t.Errorf("job %s: %+v, want %s with %d runs, %d failed; it says: %s", j.id, s, verdict, runs, failed, j.Message)
		for _, r := range runsOf(j.Job) {
			j.t.Logf("%s attempt %d: gate %s (%s), %s", r.Node, r.Attempt, r.Gate, r.GateWhy, r.Outcome())
		}
	}
}

// checkConverged checks that a job converged with the wanted number of runs of each node.
func (j *job) checkConverged(want map[tutti.NodeName]int) {
	j.t.Helper()
	got := map[tutti.NodeName]int{}
	for _, r := range runsOf(j.Job) {
		j.t.Logf("%6.1fs %6.1fs %s attempt %d: %s %s %s", r.WantedAt.Sub(j.StartedAt).Seconds(), r.EndedAt.Sub(j.StartedAt).Seconds(), r.Node, r.Attempt, r.Gate, r.Outcome(), r.GateWhy)
		if r.Passed() {
			got[r.Node]++
		}
	}
	if !maps.Equal(want, got) || j.Verdict != tutti.VerdictConverged {
		j.t.Errorf("job %s: %s (%s); runs -want +got\n%s", j.id, j.Verdict, j.Message, cmp.Diff(want, got))
	}
}

// TestConvergeFaults converges a small site several times. In the middle the server is killed, a
// node loses its network, or a node loses its power. In the end the site is converged, or the
// verdict names the missing node. If the verdict names the missing node, the site converges after
// that node is back.
func TestConvergeFaults(t *testing.T) {
	for _, h := range fleet.Nodes {
		sh(t, h, "rm -f /var/tmp/e2e-round")
		later(t, h, "rm -f /var/tmp/e2e-round")
	}
	t.Run("quiet", func(t *testing.T) {
		push(t, roundFleet, roundSite("quiet"))
		j := converge(t, fleet).end()
		j.checkSummary(tutti.VerdictConverged, 3, 0)
		checkRound(t, "quiet")
	})
	t.Run("server killed", func(t *testing.T) {
		push(t, roundFleet, roundSite("killed"))
		first := newBarrier(t, host(t, "node-02"))
		j := converge(t, fleet)
		first.wait() // node-02 applies, and the other nodes wait at their gates or have not reached their gates yet
		killServer(t, fleet)
		first.open()
		j.end()
		j.checkSummary(tutti.VerdictConverged, 3, 0)
		for _, r := range runsOf(j.Job) {
			checkOneStart(t, host(t, string(r.Node)), r.Run)
		}
		checkRound(t, "killed")
	})
	t.Run("node cut off", func(t *testing.T) {
		shortDeadline(t)
		push(t, roundFleet, roundSite("cut"))
		away := host(t, "node-03")
		t.Cleanup(func() { heal(context.Background(), t, away) })
		b := newBarrier(t, away)
		j := converge(t, fleet)
		b.wait()
		if err := away.Cut(t.Context()); err != nil {
			t.Fatal(err)
		}
		j.end()
		if j.Verdict != tutti.VerdictPartial || !strings.Contains(j.Message, "node-03 is not connected") {
			t.Errorf("with node-03 cut off: %s, %q; want partial, naming it", j.Verdict, j.Message)
		}
		heal(t.Context(), t, away)
		b.open()
		run := j.last(tutti.StepName(api.ConvergePlan), "node-03")
		eventually(t, "the result of the run that was given up", func() bool {
			record, err := fleet.Client.RunRecord(t.Context(), run.Run)
			return err == nil && record.Run == run.Run
		})
		if second := converge(t, fleet).end(); second.Verdict != tutti.VerdictConverged {
			t.Errorf("when it is back: %s, %q", second.Verdict, second.Message)
		}
		checkRound(t, "cut")
	})
	t.Run("node without power", func(t *testing.T) {
		push(t, roundFleet, roundSite("power"))
		off := host(t, "node-03")
		b := newBarrier(t, off)
		j := converge(t, fleet)
		b.wait()
		power(t, off)
		j.end()
		// node-01 has a new export, so node-01 runs while node-03 is off, and once more after that.
		j.checkSummary(tutti.VerdictConverged, 5, 1)
		checkRound(t, "power")
	})
}

// heal reconnects a node to the other hosts.
func heal(ctx context.Context, t *testing.T, h *lab.Host) {
	t.Helper()
	if err := h.Heal(ctx); err != nil {
		t.Error(err)
	}
}

const verdictFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  asks: {nodes: [node-01]}
`

// summary is the last line of the output of `tutti converge --json`.
type summary struct {
	Type    string        `json:"type"`
	Outcome tutti.Verdict `json:"outcome"`
	Runs    int           `json:"runs"`
	Failed  int           `json:"failed"`
	Message string        `json:"message"`
}

// convergeCLI converges with the command line, from a directory.
func convergeCLI(t *testing.T, dir string, args ...string) (summary, int) {
	t.Helper()
	out, code := tuttiCLI(t, fleet, append([]string{"converge", "--json", "-f", dir + "/tutti.yaml"}, args...)...)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	var last summary
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Type != "summary" {
		t.Fatalf("last line %s: %v", lines[len(lines)-1], err)
	}
	return last, code
}

// TestConvergeStuck checks that a node waits for a value that nobody has published. The command
// must report this at once, with key, node and place. When somebody publishes the value, the node
// converges.
func TestConvergeStuck(t *testing.T) {
	const key = "shared/stuck/it"
	dir := write(t, verdictFleet, "node 'node-01' {\n\t$it = tutti::value('"+key+"')\n\tnotify { \"it is ${it}\": }\n}\n")
	got, code := convergeCLI(t, dir, "asks")
	if code != cli.ExitStuck || got.Outcome != tutti.VerdictStuck {
		t.Errorf("exit code %d, %+v; want stuck", code, got)
	}
	for _, want := range []string{"node-01", key, "site.pp:2"} {
		if !strings.Contains(got.Message, want) {
			t.Errorf("the verdict does not name %s: %s", want, got.Message)
		}
	}
	if err := fleet.Client.SetValue(t.Context(), key, []byte(`"there"`)); err != nil {
		t.Fatal(err)
	}
	got, code = convergeCLI(t, dir, "asks")
	if code != cli.ExitOK || got.Outcome != tutti.VerdictConverged || got.Runs != 1 || got.Failed != 0 {
		t.Errorf("published: exit code %d, %+v; want converged in one run", code, got)
	}
}

// TestConvergeFailing has a node that fails repeatedly with the same inputs. The server must not
// run this node again, and the command must name the node.
func TestConvergeFailing(t *testing.T) {
	dir := write(t, verdictFleet, "node 'node-01' {\n\texec { 'break': command => '/bin/false' }\n}\n")
	got, code := convergeCLI(t, dir, "asks")
	if code != cli.ExitFailed || got.Outcome != tutti.VerdictFailed || got.Runs != 3 || got.Failed != 3 {
		t.Errorf("exit code %d, %+v; want failed after three tries", code, got)
	}
	if !strings.Contains(got.Message, "node-01 failed:resources") {
		t.Errorf("the verdict does not name the node: %s", got.Message)
	}
}
