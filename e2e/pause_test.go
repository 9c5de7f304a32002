//go:build e2e

package e2e_test

import (
	"testing"
	"time"

	"github.com/tutti-project/tutti"
)

// TestPausedServer stops the server with a signal in the middle of a job, for twice its deadline of
// silence. During this time one run applies, one run ends and has a result to report, and one run
// reaches its gate. No run may be lost or start again, and no result may be dropped.
func TestPausedServer(t *testing.T) {
	deadline := shortDeadline(t)
	push(t, everyNode, "node 'node-03' {\n"+waitCompile+"notify { 'compiled': }\n}\nnode default {\n"+waitExec+"}\n")
	long, short, gate := newBarrier(t, host(t, "node-01")), newBarrier(t, host(t, "node-02")), newBarrier(t, host(t, "node-03"))
	j := start(t, fleet, "every", tutti.ModeApply)
	for _, b := range []*barrier{long, short, gate} {
		b.wait()
	}
	later(t, fleet.Server, "systemctl kill --kill-whom=main --signal=CONT tutti-server")
	sh(t, fleet.Server, "systemctl kill --kill-whom=main --signal=STOP tutti-server")
	short.open()
	gate.open()
	<-time.After(2 * deadline)
	sh(t, fleet.Server, "systemctl kill --kill-whom=main --signal=CONT tutti-server")
	long.open()
	j.end()
	if s := j.Summary(j.EndedAt); s.Outcome != tutti.VerdictSucceeded || s.Runs != 3 || s.Failed != 0 {
		t.Errorf("summary %+v (%s), want 3 runs, none failed", s, j.Message)
	}
	for _, h := range fleet.Nodes {
		r := j.last("run-every", tutti.NodeName(h.Name))
		j.expect(r, tutti.Changed, "", "")
		checkOneStart(t, h, r.Run)
		if r.Lost != "" {
			t.Errorf("%s was given up: %s", h.Name, r.Lost)
		}
	}
}
