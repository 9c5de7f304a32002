//go:build e2e

package e2e_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/api"
	"github.com/tutti-project/tutti/internal/engine"
	"github.com/tutti-project/tutti/internal/lab"
	"github.com/tutti-project/tutti/internal/stage"
)

// attackFleet has one plan for each node, with the node's name, so that the test can attack several
// nodes at the same time.
const attackFleet = `
fleet: e2e
environment: {name: production, path: ./code}
groups:
  one:   {nodes: [node-01]}
  two:   {nodes: [node-02]}
  three: {nodes: [node-03]}
plans:
  node-01: {steps: [{run: one}]}
  node-02: {steps: [{run: two}]}
  node-03: {steps: [{run: three}]}
  short:   {steps: [{run: three, timeout: 45s}]}
`

// heldSite holds a run in the middle of its apply until the test creates a file. The exec's command
// records its own pid.
const heldSite = `
	exec { 'hold':
		command => '/bin/sh -c "echo \$\$ > /run/e2e-held; while [ ! -e /run/e2e-go ]; do sleep 0.1; done"',
		timeout => 0,
	}
	-> file { '/run/e2e-after': content => 'the rest of the catalog' }
`

// The type `held` is a run that waits during its apply.
type held struct {
	*job
	host *lab.Host
	run  tutti.RunID
}

// The function `hold` starts the plan on the node and returns when the node's Puppet waits.
func hold(t *testing.T, plan tutti.PlanName, node tutti.NodeName) *held {
	t.Helper()
	h := &held{host: host(t, string(node))}
	sh(t, h.host, "rm -f /run/e2e-*")
	h.job = start(t, fleet, plan, tutti.ModeApply)
	h.until(func(w api.Watched) bool {
		if w.Live == nil || w.Live.Resource != "Exec[hold]" {
			return false
		}
		h.run = w.Live.Run
		return true
	})
	if h.run == "" {
		t.Fatalf("job %s ended before its run was held: %s", h.id, h.Message)
	}
	eventually(t, "what the exec started notes its pid", func() bool { return sh(t, h.host, "cat /run/e2e-held 2>/dev/null || true") != "" })
	return h
}

// The method letGo ends this wait, and the run continues to its end.
func (h *held) letGo() { sh(h.t, h.host, "touch /run/e2e-go") }

// pid returns the pid of the run's Puppet.
func (h *held) pid() string {
	return sh(h.t, h.host, `sed -E 's/.*"pid":([0-9]+).*/\1/' `+h.file("pid"))
}

func (h *held) file(name string) string {
	return "/var/lib/tutti/agent/runs/" + string(h.run) + "/" + name
}

// The method `ended` watches the job to its verdict and returns the run. The run must be the only
// one of its job, and must have had one launcher.
func (h *held) ended() *engine.Run {
	h.t.Helper()
	h.end()
	checkOneStart(h.t, h.host, h.run)
	step := h.Steps[0]
	if n := len(step.Nodes[0].Runs); n != 1 {
		h.t.Errorf("the job has %d runs, want 1", n)
	}
	return step.Nodes[0].Last()
}

// The function `later` registers a script that runs on a host at the end of the test.
func later(t *testing.T, h *lab.Host, script string) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if _, err := stage.Output(ctx, h, nil, "sh", "-euc", script); err != nil {
			t.Error(err)
		}
	})
}

// Each launcher writes the phase `settings` into the run's directory once. checkOneStart checks
// that the phase is there exactly once, so the run had only one launcher.
func checkOneStart(t *testing.T, h *lab.Host, run tutti.RunID) {
	t.Helper()
	got := sh(t, h, fmt.Sprintf(`grep -c '"phase":"settings"' /var/lib/tutti/agent/runs/%s/phase.jsonl`, run))
	if got != "1" {
		t.Errorf("the launcher of run %s started %s times", run, got)
	}
}

// TestAgentAttacked kills or restarts the agent, the Puppet or the run itself in the middle of a
// run, in each way that happens in practice.
func TestAgentAttacked(t *testing.T) {
	push(t, attackFleet, heldSite)
	lanes := map[tutti.NodeName][]struct {
		name    string
		plan    tutti.PlanName
		attack  func(h *held)
		outcome tutti.Outcome
		because tutti.Reason
		says    string
		reason  string
	}{
		"node-01": {
			{name: "agent killed", attack: killAgent, outcome: tutti.Changed, reason: "systemd restarts the agent, which follows the run on"},
			{name: "puppet killed", attack: func(h *held) { sh(h.t, h.host, "kill -9 "+h.pid()) }, outcome: tutti.Interrupted, says: "in phase apply", reason: "no report and no process"},
		},
		"node-02": {
			{name: "agent away", attack: stopAgent, outcome: tutti.Changed, reason: "the outcome is on disk when the agent comes back"},
			{name: "puppet terminated", attack: func(h *held) { sh(h.t, h.host, "kill -TERM "+h.pid()) }, outcome: tutti.Interrupted, says: "somebody ended", reason: "a signal that Ruby handles is no outcome of Puppet"},
			{name: "job cancelled", attack: cancelNow, outcome: tutti.Interrupted, says: "cancelled in phase apply", reason: "a person said so"},
		},
		"node-03": {
			{name: "agent restarted", attack: restartAgent, outcome: tutti.Changed, reason: "the run lives in a scope of its own"},
			{name: "timeout", plan: "short", attack: func(*held) {}, outcome: tutti.Failed, because: tutti.BecauseTimeout, says: "timeout of 45s", reason: "nothing waits for ever"},
		},
	}
	for node, cases := range lanes {
		t.Run(string(node), func(t *testing.T) {
			t.Parallel()
			for _, tc := range cases {
				t.Run(tc.name, func(t *testing.T) {
					plan := tc.plan
					if plan == "" {
						plan = tutti.PlanName(node)
					}
					h := hold(t, plan, node)
					child := sh(t, h.host, "cat /run/e2e-held")
					later(t, h.host, "touch /run/e2e-go") // this file ends processes that outlive a killed Puppet
					tc.attack(h)
					r := h.ended()
					h.expect(r, tc.outcome, tc.because, tc.says)
					checkAfter(t, h, tc.outcome, child)
					if t.Failed() {
						t.Log("because ", tc.reason)
					}
				})
			}
		})
	}
}

// checkAfter checks what the run has left on the host.
func checkAfter(t *testing.T, h *held, outcome tutti.Outcome, child string) {
	t.Helper()
	after := sh(t, h.host, "ls /run/e2e-after 2>/dev/null || true")
	if done := after != ""; done != outcome.Good() {
		t.Errorf("the rest of the catalog was applied: %v", done)
	}
	if ours := h.Cancelled || outcome == tutti.Failed; ours { // we ended it
		if left := sh(t, h.host, "ps -o pid=,args= -p "+child+" 2>/dev/null || ls -d /proc/"+child+" 2>/dev/null || true"); left != "" {
			t.Errorf("what Puppet had started is still there: %s", left)
		}
	}
}

func agentPID(h *held) string {
	return sh(h.t, h.host, "systemctl show -p MainPID --value tutti-agent")
}

func killAgent(h *held) {
	before := agentPID(h)
	sh(h.t, h.host, "kill -9 "+before)
	eventually(h.t, "systemd restarts the agent", func() bool { return agentPID(h) != before && agentPID(h) != "0" })
	h.letGo()
}

func stopAgent(h *held) {
	puppet := h.pid()
	sh(h.t, h.host, "systemctl stop tutti-agent")
	h.letGo()
	eventually(h.t, "the run ends without an agent", func() bool {
		return sh(h.t, h.host, "ls -d /proc/"+puppet+" 2>/dev/null || true") == ""
	})
	if got := sh(h.t, h.host, "ls "+strings.TrimSuffix(h.file(""), "/")); strings.Contains(got, "result.json") {
		h.t.Errorf("somebody judged the run while the agent was away: %s", got)
	}
	sh(h.t, h.host, "systemctl start tutti-agent")
}

func restartAgent(h *held) {
	sh(h.t, h.host, "systemctl restart tutti-agent")
	h.letGo()
}

func cancelNow(h *held) {
	if out, code := tuttiCLI(h.t, fleet, "job", "cancel", string(h.id), "--now", "--yes", "--reason", "a test"); code != 0 {
		h.t.Fatalf("exit code %d: %s", code, out)
	}
}
