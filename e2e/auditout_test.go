//go:build e2e

package e2e_test

import (
	"fmt"
	"testing"
)

// TestAuditOut checks that the server, within the limits of its unit, writes the audit trail to a file and to the
// journal. After a kill the server must continue the file and the journal.
func TestAuditOut(t *testing.T) {
	const unit = "/etc/systemd/system/tutti-server.service.d/audit.conf"
	s := fleet.Server
	later(t, s, "rm -r $(dirname "+unit+") /var/log/tutti/audit.jsonl; systemctl daemon-reload; systemctl restart tutti-server")
	sh(t, s, fmt.Sprintf(`mkdir -p $(dirname %[1]s)
		printf '[Service]\nExecStart=\nExecStart=/usr/local/bin/tutti server --audit-file /var/log/tutti/audit.jsonl --audit-syslog\n' > %[1]s
		systemctl daemon-reload
		systemctl restart tutti-server`, unit))
	seen := func(node string) {
		t.Helper()
		if out, code := tuttiCLI(t, fleet, "pause", node, "--reason", "audit of "+node, "--for", "1m"); code != 0 {
			t.Fatalf("pause: exit code %d: %s", code, out)
		}
		defer tuttiCLI(t, fleet, "unpause", node)
		eventually(t, "the file has it", func() bool { return sh(t, s, "grep -c 'audit of "+node+"' /var/log/tutti/audit.jsonl || true") != "0" })
		eventually(t, "the journal has it", func() bool {
			return sh(t, s, "journalctl --no-pager -t tutti-audit -o cat SYSLOG_FACILITY=10 | grep -c 'audit of "+node+"' || true") != "0"
		})
	}
	seen("node-01")
	sh(t, s, "systemctl kill --signal=KILL --kill-whom=main tutti-server; systemctl restart tutti-server")
	seen("node-02")
	if got := sh(t, s, "stat -c '%a %U' /var/log/tutti/audit.jsonl /var/log/tutti"); got != "600 root\n750 root" {
		t.Errorf("file and directory: %s", got)
	}
}
