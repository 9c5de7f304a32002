//go:build e2e

package e2e_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/tutti-project/tutti"
	"github.com/tutti-project/tutti/internal/lab"
)

// localSite uses a secret in a run that is held in the middle.
const localSite = `
	$secret = Sensitive(strip(file('/root/e2e-secret')))
	file { '/root/e2e-written': content => $secret }
	-> exec { 'hold':
		command => '/bin/sh -c "echo \$\$ > /run/e2e-held; while [ ! -e /run/e2e-go ]; do sleep 0.1; done"',
		timeout => 0,
	}
	-> file { '/run/e2e-after': content => 'the rest of the catalog' }
`

// asNobody runs a shell script on a host as a user without any rights. asNobody prints the output
// of the script. asNobody succeeds even if the attacks in the script fail.
func asNobody(t *testing.T, h *lab.Host, script string) string {
	t.Helper()
	return sh(t, h, fmt.Sprintf("runuser -u nobody -- sh -c '%s' 2>&1 || true", script))
}

// writable lists the directories that every user may write to.
const writable = "/tmp /var/tmp /dev/shm /run/lock"

// TestLocalUser plays a user with a shell on a node, without root, during a run with a secret. The
// user must not be able to read the secret, to end or delay the run, or to make root write files.
func TestLocalUser(t *testing.T) {
	const secret = "e2e-hunter2-90c4"
	node := host(t, "node-01")
	sh(t, node, "rm -f /run/e2e-* /root/e2e-*; umask 077; echo "+secret+" > /root/e2e-secret; echo untouched > /root/e2e-target")
	later(t, node, "rm -rf /run/e2e-* /root/e2e-*; find "+writable+" -user nobody -delete")
	// Before the run begins, the user creates links under every name that somebody could guess.
	asNobody(t, node, "for d in "+writable+"; do for n in tutti tutti-agent puppet-tutti puppet tutti.sock run.json; do ln -s /root/e2e-target $d/$n; done; done")
	before := sh(t, node, "find "+writable+" -user root | sort")
	push(t, attackFleet, localSite)
	h := hold(t, "node-01", "node-01")
	dir := "/var/lib/tutti/agent/runs/" + string(h.run)

	t.Run("reads", func(t *testing.T) {
		secrets := sh(t, node, "cat /var/lib/tutti/agent/identity/node.nk")
		if secrets == "" || sh(t, node, "ls "+dir) == "" {
			t.Fatal("there is nothing to be read: this test sees nothing")
		}
		for _, what := range []string{
			"ls -R /var/lib/tutti/agent/runs", "cat /var/lib/tutti/agent/identity/node.nk", "cat /var/lib/tutti/agent/identity/membership.json",
			"cat " + dir + "/run.json", "cat " + dir + "/log.jsonl", "ls " + dir,
			"cat /proc/" + h.pid() + "/environ", "ls /proc/" + h.pid() + "/fd", "journalctl --no-pager -u tutti-agent -n 5 -q",
		} {
			if out := asNobody(t, node, what); !strings.Contains(out, "ermission") && !strings.Contains(out, "ot permitted") && out != "" {
				t.Errorf("%s: %s", what, out)
			}
		}
		for _, s := range []string{secret, secrets} { // even root finds no secret there
			pattern := s[:4] + "[" + s[4:5] + "]" + s[5:]
			if out := sh(t, node, fmt.Sprintf("grep -alE '%s' /proc/[0-9]*/cmdline /proc/[0-9]*/environ 2> /dev/null || true", pattern)); out != "" {
				t.Errorf("a secret is in %s", out)
			}
			if out := sh(t, node, fmt.Sprintf("journalctl --no-pager -o export | grep -acE '%s' || true", pattern)); out != "0" {
				t.Errorf("a secret is in %s lines of the journal", out)
			}
		}
	})
	t.Run("the run's socket", func(t *testing.T) {
		sockets := sh(t, node, "awk '$8 ~ /tutti/ {print $8}' /proc/net/unix | sort -u")
		if sockets == "" {
			t.Fatal("there is no socket: this test sees nothing")
		}
		for path := range strings.FieldsSeq(sockets) {
			if out := asNobody(t, node, `ruby -rsocket -e "UNIXSocket.new(ARGV[0]); puts :open" `+path); !strings.Contains(out, "Permission denied") {
				t.Errorf("%s: %s", path, out)
			}
		}
	})
	t.Run("signals", func(t *testing.T) {
		for _, pid := range []string{h.pid(), sh(t, node, "cat /run/e2e-held"), agentPID(h)} {
			if out := asNobody(t, node, "/bin/kill -9 "+pid); !strings.Contains(out, "not permitted") {
				t.Errorf("kill %s: %s", pid, out)
			}
		}
	})
	t.Run("a lock", func(t *testing.T) {
		lock := sh(t, node, "puppet config print agent_catalog_run_lockfile agent_disabled_lockfile | sed 's/.*= //'")
		for path := range strings.FieldsSeq(lock) {
			if out := asNobody(t, node, "rm -f "+path+"; echo 1 > "+path); !strings.Contains(out, "ermission") {
				t.Errorf("%s: %s", path, out)
			}
		}
	})
	t.Run("what root writes", func(t *testing.T) {
		if out := sh(t, node, "find /var/lib/tutti /etc/systemd/system/tutti-agent.service ! -type l \\( -perm /022 -o ! -user root \\)"); out != "" {
			t.Errorf("others may write to\n%s", out)
		}
	})
	h.letGo()
	h.ended()
	h.expect(h.last("run-one", "node-01"), tutti.Changed, "", "")
	if got := sh(t, node, "cat /root/e2e-target /root/e2e-written"); got != "untouched\n"+secret {
		t.Errorf("root wrote through a link: %q", got)
	}
	if after := sh(t, node, "find "+writable+" -user root | sort"); after != before {
		t.Errorf("root left in places that everybody may write to:\n%s\nbefore:\n%s", after, before)
	}
}
