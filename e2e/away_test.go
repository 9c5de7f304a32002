//go:build e2e

package e2e_test

import (
	"testing"

	"github.com/tutti-project/tutti"
)

// TestServerAway stops the server while nodes compile. A question that the node asked before gets
// the last known answer. The run then waits at its gate for the server, and is marked as degraded.
// A question that the node never asked gets no answer, which differs from an empty answer.
func TestServerAway(t *testing.T) {
	for _, key := range []string{"shared/away/known", "shared/away/new"} {
		if err := fleet.Client.SetValue(t.Context(), key, []byte(`"there"`)); err != nil {
			t.Fatal(err)
		}
	}
	known := "$v = tutti::value('shared/away/known', 'by default')\nfile { \"/run/e2e-away-${v}\": content => '' }\n"
	push(t, everyNode, known)
	execute(t, "every", tutti.ModeApply)
	push(t, everyNode, waitCompile+`
		if $trusted['certname'] == 'node-02' {
			$n = tutti::value('shared/away/new', 'by default')
			file { "/run/e2e-new-${n}": content => '' }
		}
	`+known)
	one, two := host(t, "node-01"), host(t, "node-02")
	later(t, one, "rm -f /run/e2e-*")
	later(t, two, "rm -f /run/e2e-*")
	first, second := newBarrier(t, one), newBarrier(t, two)
	j := start(t, fleet, "every", tutti.ModeApply)
	first.wait()
	second.wait()
	later(t, fleet.Server, "systemctl start tutti-server")
	sh(t, fleet.Server, "systemctl stop tutti-server")
	first.open()
	second.open()

	eventually(t, "the gate waits for the server", func() bool {
		return sh(t, one, "journalctl -u tutti-agent --no-pager | grep -c 'the gate waits for the server' || true") != "0"
	})
	eventually(t, "the other has ended", func() bool {
		return sh(t, two, "cd "+runs+"; ls $(ls -t | head -1) | grep result.json || true") != ""
	})
	sh(t, fleet.Server, "systemctl start tutti-server")
	j.end()
	r := j.last("run-every", "node-01")
	j.expect(r, tutti.Unchanged, "", "")
	if !r.Result.Degraded {
		t.Error("the run that was answered from memory is not marked degraded")
	}
	j.expect(j.last("run-every", "node-02"), tutti.Waiting, "", "shared/away/new")
	if got := sh(t, two, "ls -d /run/e2e-new-* 2> /dev/null || true"); got != "" {
		t.Errorf("no answer was taken for an answer: %s", got)
	}
	for _, n := range []tutti.NodeName{"node-01", "node-02"} {
		checkOneStart(t, host(t, string(n)), j.last("run-every", n).Run)
	}
}
