//go:build e2e

package e2e_test

import (
	"fmt"
	"testing"

	"github.com/tutti-project/tutti"
)

// TestDenied checks that a request without a grant has no effect. The run names the line of the
// fleet file that would allow the request, and the log records the attempt.
func TestDenied(t *testing.T) {
	push(t, everyNode, `
		node 'node-01' { tutti_value { 'shared/e2e-denied': value => 1 } }
		node 'node-02' { notify { String(tutti::value('e2e/denied', 'by default')): } }
		node 'node-03' { @@notify { 'e2e-denied': } }
	`)
	j := execute(t, "every", tutti.ModeApply)
	tests := map[tutti.NodeName]struct {
		reason  string
		because tutti.Reason
		grant   string
		audit   string // in the log
	}{
		"node-01": {"the gate has the keys that the catalog declares", tutti.BecauseRefused,
			`- {to: every, write: ["shared/e2e-denied"]}`, "write shared/e2e-denied"},
		"node-02": {"a value that may not be read has no default", tutti.BecauseCompile,
			`- {to: every, read: ["e2e/denied"]}`, "read e2e/denied"},
		"node-03": {"exports are published at the gate", tutti.BecauseRefused,
			"- {to: every, exports: [Notify]}", "export Notify"},
	}
	for node, tc := range tests {
		t.Run(string(node), func(t *testing.T) {
			j.t = t
			j.expect(j.last("run-every", node), tutti.Failed, tc.because, tc.grant)
			found := sh(t, fleet.Server, fmt.Sprintf(`grep -raoE '"audit.denied"[^}]*"who":"node:%s","what":"%s"' /var/lib/tutti/server/jetstream | wc -l`, node, tc.audit))
			if found != "1" {
				t.Errorf("%s: %s denials are in the log, want 1", tc.reason, found)
			}
		})
	}
	if values, err := fleet.Client.ListValues(t.Context(), "shared/e2e-denied"); err != nil || len(values) > 0 {
		t.Errorf("the value is there: %+v, %v", values, err)
	}
}
